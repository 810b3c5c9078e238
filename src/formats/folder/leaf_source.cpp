#include "formats/folder/leaf_source.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/tensor.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/text.hpp"
#include "formats/folder/files.hpp"
#include "formats/folder/keys.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::detail::formats::folder {
namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;

std::size_t piece_bytes(std::uint64_t left) {
  return static_cast<std::size_t>(std::min(kPieceBytes, left));
}

/// True if the first `size_bytes` bytes of both files are equal; false if one of them is shorter.
bool same_content(const StoredFile& a, const StoredFile& b, std::uint64_t size_bytes) {
  std::vector<std::byte> scratch(2 * piece_bytes(size_bytes));
  for (std::uint64_t done = 0; done < size_bytes;) {
    const std::size_t count = piece_bytes(size_bytes - done);
    const auto one = std::span(scratch).first(count);
    const auto two = std::span(scratch).subspan(scratch.size() / 2, count);
    if (a.read_some_at(done, one) != count || b.read_some_at(done, two) != count) return false;
    if (std::memcmp(one.data(), two.data(), count) != 0) return false;
    done += count;
  }
  return true;
}

/// True if the file starts with `bytes`.
bool same_content(const StoredFile& file, std::span<const std::byte> bytes) {
  std::vector<std::byte> scratch(piece_bytes(bytes.size()));
  for (std::uint64_t done = 0; done < bytes.size();) {
    const std::size_t count = piece_bytes(bytes.size() - done);
    const auto piece = std::span(scratch).first(count);
    if (file.read_some_at(done, piece) != count) return false;
    if (std::memcmp(piece.data(), bytes.data() + done, count) != 0) return false;
    done += count;
  }
  return true;
}

}  // namespace

FolderSource::FolderSource(std::shared_ptr<Store> store, std::shared_ptr<Folder> folder,
                           std::string note_path)
    : store_(std::move(store)), folder_(std::move(folder)), note_path_(std::move(note_path)) {}

std::uint64_t FolderSource::add(const MetaEntry& entry, const std::string& file_name) {
  Record record{entry.key, entry.size_bytes};
  if (store_->has_aliases()) {
    record.group = store_->alias_group(note_path_child(note_path_, entry.key));
  }
  if (!file_name.empty()) file_names_.emplace(records_.size(), file_name);
  records_.push_back(std::move(record));
  return records_.size() - 1;
}

std::string FolderSource::file_name(std::uint64_t position) const {
  const auto named = file_names_.find(position);
  return named == file_names_.end() ? encode_key(records_[position].key) : named->second;
}

std::string FolderSource::part(std::uint64_t position) const {
  return "tensor " + base::quote(records_[position].key);
}

std::string FolderSource::data_file_name(std::uint64_t position) const {
  std::string name = file_name(position);
  if (!is_clash_name(name)) name += kLeafSuffix;
  return name;
}

std::string FolderSource::file_path(std::uint64_t position) const {
  return folder_->display() + "/" + data_file_name(position);
}

base::Where FolderSource::where(const Leaf& leaf) const { return file_path(position_of(leaf)); }

std::string FolderSource::file_of(const Leaf& leaf) {
  const std::uint64_t position = position_of(leaf);
  const std::string& key = records_[position].key;
  const std::string base_name = file_name(position);
  if (is_clash_name(base_name)) return base_name;
  std::string name = base_name + std::string(kLeafSuffix);
  if (base_name == key || info_of(name) || !may_use_raw_name(key)) return name;
  std::string raw = key + std::string(kLeafSuffix);
  return info_of(raw) ? raw : name;
}

std::unique_ptr<StoredFile> FolderSource::try_open(const std::string& name,
                                                   bool for_writing) const {
  if (name.size() > os::kMaxNameBytes) return nullptr;
  return folder_->try_open(name, for_writing);
}

std::optional<StoredInfo> FolderSource::info_of(const std::string& name) const {
  if (name.size() > os::kMaxNameBytes) return std::nullopt;
  return folder_->file_info(name);
}

/// True if the file that is named by the unencoded key may be opened and belongs to this leaf: the
/// name is safe, and is not the encoded name of another leaf of the folder.
bool FolderSource::may_use_raw_name(const std::string& key) {
  if (!is_safe_raw_leaf(key)) return false;
  const auto other = decode_key(key);
  if (!other) return true;
  const std::lock_guard lock(mutex_);
  if (keys_.empty()) {
    for (const Record& record : records_) keys_.insert(record.key);
  }
  return !keys_.contains(*other);
}

std::unique_ptr<StoredFile> FolderSource::open_file(std::uint64_t position, std::string_view suffix,
                                                    bool for_writing) {
  const std::string& key = records_[position].key;
  const std::string base_name = file_name(position);
  const bool clashed = is_clash_name(base_name);
  std::string name = base_name;
  if (!clashed || suffix != kLeafSuffix) name += suffix;
  auto file = try_open(name, for_writing);
  if (!file && base_name != key && !clashed && may_use_raw_name(key)) {
    // Files that tensordict wrote before version 0.14, or with robust_key=False, are named by the
    // unencoded key.
    const bool is_sizes = suffix == kSizesSuffix;
    file = try_open(is_sizes ? sizes_name(key) : key + std::string(suffix), for_writing);
  }
  if (file) return file;
  if (folder_->was_replaced()) folder_->throw_replaced();
  throw base::corrupt(folder_->display())
      .part(part(position))
      .problem("leaf file is missing")
      .expected("a file ", base::quote(name));
}

void FolderSource::check_size(const StoredFile& file, std::uint64_t found_bytes,
                              std::uint64_t position, std::uint64_t size_bytes) const {
  if (found_bytes >= size_bytes) return file.check_cost(size_bytes);
  throw base::corrupt(file.display())
      .part(part(position))
      .problem("the file is too short")
      .expected(size_bytes, " bytes")
      .found(found_bytes)
      .remedy("it may be truncated");
}

FolderSource::NestedSizes FolderSource::load_sizes(const Leaf& leaf) {
  const std::uint64_t position = position_of(leaf);
  const std::uint64_t size_bytes = records_[position].size_bytes;
  NestedSizes nested;
  std::uint64_t elements = 0;
  if (size_bytes > 0) {
    const auto file = open_file(position, kSizesSuffix, false);
    check_size(*file, file->info().size_bytes, position, size_bytes);
    const Buffer bytes = Buffer::allocate(static_cast<std::size_t>(size_bytes));
    file->read_at(0, bytes.mutable_bytes());
    nested.sizes = Tensor(DType::int64, leaf.shape(), bytes);
    const auto total = nested_numel(nested.sizes);
    if (!total) {
      throw base::corrupt(file->display())
          .part(part(position), ": sizes of the components")
          .expected("lengths of at least 0, and fewer than 2^63 elements in total");
    }
    elements = *total;
  } else {
    nested.sizes = Tensor(DType::int64, leaf.shape(), Buffer());
  }
  const auto data_bytes = base::checked_mul(elements, itemsize(leaf.dtype()));
  if (!data_bytes || *data_bytes > std::numeric_limits<std::int64_t>::max()) {
    throw base::corrupt(folder_->display())
        .part(part(position))
        .problem("nested tensor too large")
        .expected("fewer than 2^63 bytes")
        .found(elements, " elements of ", itemsize(leaf.dtype()), " bytes");
  }
  nested.data_bytes = *data_bytes;
  return nested;
}

const FolderSource::NestedSizes& FolderSource::read_sizes(const Leaf& leaf) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = nested_.find(position_of(leaf));
    if (found != nested_.end()) return *found->second;
  }
  auto loaded = std::make_unique<const NestedSizes>(load_sizes(leaf));
  const std::lock_guard lock(mutex_);
  return *nested_.try_emplace(position_of(leaf), std::move(loaded)).first->second;
}

Tensor FolderSource::nested_sizes(const Leaf& leaf) {
  if (!leaf.is_nested()) return LeafSource::nested_sizes(leaf);
  return read_sizes(leaf).sizes;
}

std::uint64_t FolderSource::data_bytes(const Leaf& leaf) {
  return leaf.is_nested() ? read_sizes(leaf).data_bytes : records_[position_of(leaf)].size_bytes;
}

Buffer FolderSource::cached(std::uint64_t position) const {
  const std::lock_guard lock(mutex_);
  return buffers_.empty() ? Buffer() : buffers_[position];
}

Buffer FolderSource::map(const Leaf& leaf) {
  const std::uint64_t position = position_of(leaf);
  if (Buffer buffer = cached(position); buffer.size_bytes() > 0) return buffer;
  const std::uint64_t size_bytes = data_bytes(leaf);
  if (size_bytes == 0) return {};
  Buffer loaded = load(leaf, size_bytes);
  const std::lock_guard lock(mutex_);
  if (buffers_.empty()) buffers_.resize(records_.size());
  // If another thread has loaded the leaf first, use its bytes.
  Buffer& slot = buffers_[position];
  if (slot.size_bytes() == 0) slot = std::move(loaded);
  return slot;
}

Buffer FolderSource::load(const Leaf& leaf, std::uint64_t size_bytes) {
  const std::uint64_t position = position_of(leaf);
  Record& record = records_[position];
  const Mode mode = store_->mode();
  const auto file = open_file(position, kLeafSuffix, mode == Mode::write_through);
  check_size(*file, file->info().size_bytes, position, size_bytes);
  const auto map = [&] { return file->map(size_bytes, mode, store_->arena()); };
  const auto own = [&] {
    if (file->info().num_links < 2) return map();
    return store_->linked(file->info().range(size_bytes), map);
  };
  if (record.group == nullptr) return own();
  AliasGroup& group = *record.group;
  const std::lock_guard lock(group.mutex);
  if (!joins_group(record, position, *file, size_bytes)) return own();
  if (group.buffer.size_bytes() == 0) group.buffer = own();
  return group.buffer.size_bytes() == size_bytes ? group.buffer : own();
}

/// True if the leaf shares the bytes of its alias group, whose mutex must be held. The first leaf
/// for which this is called represents the group. If the source of that leaf is destroyed before
/// the group has bytes, the next leaf represents the group. A leaf in a different file joins the
/// group if its bytes are equal, which is checked once; in mode write_through it never joins.
bool FolderSource::joins_group(Record& record, std::uint64_t position, const StoredFile& file,
                               std::uint64_t size_bytes) {
  AliasGroup& group = *record.group;
  const StoredInfo& info = file.info();
  if (record.in_group || record.left_group) return record.in_group;
  const auto reporter = group.source.lock();
  if (!group.started || (!reporter && group.buffer.size_bytes() == 0)) {
    group.started = true;
    group.info = info;
    group.source = weak_from_this();
    group.position = position;
    return record.in_group = true;
  }
  if (group.info.range(size_bytes) == info.range(size_bytes)) return record.in_group = true;
  // Shared mappings of two files cannot share memory: a write would reach only one of the files.
  const bool apart = store_->mode() == Mode::write_through;
  bool equal = false;
  if (!apart && reporter) {
    const auto other = reporter->open_file(group.position, kLeafSuffix, false);
    equal = same_content(file, *other, size_bytes);
  } else if (!apart && group.buffer.size_bytes() == size_bytes) {
    equal = same_content(file, group.buffer.bytes());
  }
  if (equal) return record.in_group = true;
  record.left_group = true;
  warn(file.display() + ": " + part(position) + ": an alias in " + std::string(kNotesName) +
       (apart ? ", but in a separate file: writes change only this file"
              : ", but its bytes differ: memory is not shared"));
  return false;
}

void FolderSource::read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) {
  const std::uint64_t size_bytes = data_bytes(leaf);
  if (!base::range_fits(offset_bytes, into.size(), size_bytes)) {
    throw base::invalid_argument(where(leaf))
        .part("bytes to read")
        .expected("a range within ", size_bytes, " bytes")
        .found(into.size(), " bytes at offset ", offset_bytes);
  }
  if (into.empty()) return;
  const std::uint64_t position = position_of(leaf);
  // In mode copy_on_write, a mapped leaf has a private copy of its bytes, which includes the writes
  // of the program, so read from the copy. Leaves that share their bytes share this copy.
  if (store_->mode() == Mode::copy_on_write) {
    Buffer copy = cached(position);
    if (copy.size_bytes() == 0 && may_share_bytes(position)) copy = map(leaf);
    if (copy.size_bytes() > 0) {
      std::memcpy(into.data(), copy.data() + offset_bytes, into.size());
      return;
    }
  }
  const auto file = open_file(position, kLeafSuffix, false);
  file->check_cost(size_bytes);
  if (file->read_some_at(offset_bytes, into) == into.size()) return;
  check_size(*file, file->size_bytes_now(), position, size_bytes);
  file->read_at(offset_bytes, into);
}

/// True if the leaf has aliases in the notes, or if its file has several hard links or is not found
/// under its usual name. Opens no file.
bool FolderSource::may_share_bytes(std::uint64_t position) const {
  if (records_[position].group != nullptr) return true;
  const auto found = info_of(data_file_name(position));
  return !found || found->num_links > 1;
}

std::uint64_t FolderSource::check(const Leaf& leaf) {
  const std::uint64_t size_bytes = data_bytes(leaf);
  if (size_bytes == 0) return 0;
  const auto file = open_file(position_of(leaf), kLeafSuffix, false);
  check_size(*file, file->info().size_bytes, position_of(leaf), size_bytes);
  return size_bytes;
}

StoredRange FolderSource::identity(const Leaf& leaf) {
  const std::uint64_t size_bytes = data_bytes(leaf);
  const std::uint64_t position = position_of(leaf);
  Record& record = records_[position];
  if (!may_share_bytes(position)) return {};
  const auto file = open_file(position, kLeafSuffix, false);
  StoredInfo info = file->info();
  check_size(*file, info.size_bytes, position, size_bytes);
  bool shared = info.num_links > 1;
  if (record.group != nullptr) {
    const std::lock_guard lock(record.group->mutex);
    if (joins_group(record, position, *file, size_bytes)) {
      info = record.group->info;
      shared = true;
    }
  }
  return shared ? info.range(size_bytes) : StoredRange{};
}

void FolderSource::flush(Monitor* monitor) {
  if (store_->mode() != Mode::write_through) return;
  std::vector<MappedPart> mapped;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (buffers_[i].size_bytes() > 0) mapped.push_back({buffers_[i], file_path(i)});
    }
  }
  folder_->flush(mapped, monitor);
}

}  // namespace tenfold::detail::formats::folder
