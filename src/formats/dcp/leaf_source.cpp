#include "formats/dcp/leaf_source.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/stream_decoder.hpp"
#include "formats/shared/object_file.hpp"

namespace tenfold::detail::formats::dcp {
namespace {

/// Tensors of up to this size are read into memory: mapping them takes longer, and Linux limits the
/// number of mappings of a process, by default to 65,530.
constexpr std::uint64_t kSmallBytes = std::uint64_t{64} << 10;
constexpr std::size_t kPieceBytes = std::size_t{256} << 10;  ///< decompressed at a time

std::string text_of(DType dtype, const Shape& shape) {
  return to_string(dtype) + " " + base::list_text(shape);
}

}  // namespace

Files::Files(os::Directory folder, std::vector<std::string> names)
    : folder_(std::move(folder)), names_(std::move(names)), files_(names_.size()) {}

base::Where Files::where(const Item& item) const {
  return {folder_.display_of(names_[item.file]), "item at byte " + std::to_string(item.begin)};
}

FilePart Files::place(const Item& item) {
  if (!item.is_compressed()) {
    return {[self = shared_from_this(), item] { return self->open(item); }, item.begin,
            item.size_bytes, where(item)};
  }
  const std::uint64_t size_bytes = decompressed(item)->size_bytes();
  return {[self = shared_from_this(), item] { return self->decompressed(item); }, 0, size_bytes,
          where(item)};
}

std::shared_ptr<const os::File> Files::decompressed(const Item& item) {
  File* stream = nullptr;
  {
    const std::lock_guard lock(streams_mutex_);
    stream = &streams_[{item.file, item.begin}];
  }
  const std::lock_guard lock(stream->mutex);
  if (auto made = stream->file.lock()) return made;
  auto made = std::make_shared<const os::File>(decompress(item));
  stream->file = made;
  recent_streams_.add(made);
  return made;
}

os::File Files::decompress(const Item& item) {
  const std::shared_ptr<const os::File> file = open(item);
  os::File into = os::File::in_memory(where(item).text());
  const std::unique_ptr<codecs::StreamDecoder> decoder = codecs::zstd_decoder(where(item));
  std::vector<std::byte> packed(kPieceBytes);
  std::vector<std::byte> piece(kPieceBytes);
  std::span<const std::byte> rest;
  std::uint64_t taken = 0;
  std::uint64_t written = 0;
  for (;;) {
    if (rest.empty() && taken < item.size_bytes) {
      const auto next = std::span(packed).first(static_cast<std::size_t>(
          std::min<std::uint64_t>(packed.size(), item.size_bytes - taken)));
      file->read_at(item.begin + taken, next);
      taken += next.size();
      rest = next;
    }
    const auto step = decoder->decode(rest, piece);
    rest = rest.subspan(step.consumed);
    if (step.consumed == 0 && step.produced == 0 && taken == item.size_bytes) break;
    if (step.produced > item.most_bytes - written) {
      throw base::corrupt(where(item))
          .problem("it decompresses to too much")
          .expected("at most ", item.most_bytes, " bytes")
          .found("more");
    }
    into.write_at(written, std::span<const std::byte>(piece).first(step.produced));
    written += step.produced;
  }
  if (!decoder->is_whole()) {
    throw base::corrupt(where(item))
        .expected("more compressed bytes")
        .found("the end of the item")
        .remedy("the file may be truncated");
  }
  return into;
}

std::shared_ptr<const os::File> Files::open(const Item& item) {
  std::shared_ptr<const os::File> file = opened(item.file);
  const std::uint64_t size_bytes = file->info_at_open().size_bytes;
  if (!base::range_fits(item.begin, item.size_bytes, size_bytes)) {
    throw base::corrupt(where(item))
        .problem("it reaches past the end of the file")
        .expected("an end at byte ", size_bytes, " or before")
        .found(item.size_bytes, " bytes from byte ", item.begin, " on")
        .remedy("the file may be truncated");
  }
  return file;
}

std::shared_ptr<const os::File> Files::opened(std::uint32_t number) {
  File& file = files_[number];
  const std::lock_guard lock(file.mutex);
  if (auto open = file.file.lock()) return open;
  os::File again = os::File::try_open_read_at(folder_, names_[number]);
  if (!again.valid()) {
    throw base::corrupt(folder_.display_of(names_[number]))
        .problem("missing")
        .expected("a file that the metadata names")
        .found("none");
  }
  const os::FileInfo& info = again.info_at_open();
  if (file.info && !file.info->same_file(info)) {
    throw Error::io(ESTALE, again.display())
        .problem("the file was replaced since it was opened")
        .remedy("open the folder again");
  }
  file.info = info;
  auto made = std::make_shared<const os::File>(std::move(again));
  file.file = made;
  recent_.add(made);
  return made;
}

void Files::Recent::add(std::shared_ptr<const os::File> file) {
  const std::lock_guard lock(mutex_);
  if (files_.size() < most_) {
    files_.push_back(std::move(file));
    return;
  }
  files_[next_] = std::move(file);
  next_ = (next_ + 1) % most_;
}

Leaf Source::add(const std::shared_ptr<Source>& source, DType dtype, Shape shape, const Item& item,
                 const std::string& name) {
  const auto [found, is_new] =
      source->positions_.try_emplace({item.file, item.begin}, source->stored_.size());
  if (is_new) {
    auto stored = std::make_unique<Stored>();
    stored->item = item;
    stored->name = name;
    source->stored_.push_back(std::move(stored));
  }
  return stored_leaf(dtype, std::move(shape), source, found->second);
}

/// Returns the tensor in the leaf's item. Throws Error(corrupt) if the item contains no tensor, or
/// one whose dtype or shape differs from that of the leaf.
const Leaf& Source::find(const Leaf& leaf) {
  Stored& stored_tensor = stored(leaf);
  std::call_once(stored_tensor.looked, [&] {
    const FilePart place = files_->place(stored_tensor.item);
    const TensorDict::Item object = read_object_item(place.file, place.begin, place.size_bytes);
    if (const auto* found = std::get_if<Leaf>(&object))
      stored_tensor.leaf = *found;
    else
      stored_tensor.found = describe_object(object);
  });
  const std::optional<Leaf>& found = stored_tensor.leaf;
  if (found && found->dtype() == leaf.dtype() && found->shape() == leaf.shape()) return *found;
  throw base::corrupt(where(leaf))
      .problem("not as in the metadata")
      .expected(text_of(leaf.dtype(), leaf.shape()))
      .found((found ? text_of(found->dtype(), found->shape()) : stored_tensor.found));
}

Buffer Source::map(const Leaf& leaf) {
  if (leaf.nbytes() == 0) return {};
  const Leaf& found = find(leaf);
  if (leaf.nbytes() > kSmallBytes) {
    // tensor() maps the bytes if they are aligned. A tensor that is not row-major is copied below.
    const Tensor tensor = found.tensor();
    if (tensor.is_contiguous()) {
      const auto begin = static_cast<std::size_t>(tensor.raw_data() - tensor.buffer().data());
      return tensor.buffer().slice(begin, static_cast<std::size_t>(tensor.nbytes()));
    }
  }
  Stored& stored_tensor = stored(leaf);
  const std::lock_guard lock(stored_tensor.mutex);
  if (stored_tensor.copy.size_bytes() == 0) {
    // The size is bounded: parse_metadata() refuses a chunk that cannot fit its item.
    Buffer filled = Buffer::allocate(static_cast<std::size_t>(leaf.nbytes()));
    found.read(0, filled.mutable_bytes());
    stored_tensor.copy = std::move(filled);
  }
  return stored_tensor.copy;
}

void Source::read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) {
  find(leaf).read(offset_bytes, into);
}

/// An item contains one tensor, so all leaves of an item have the same identity.
StoredRange Source::identity(const Leaf& leaf) {
  return {.device = StoredRange::kThisProcess,
          .inode = reinterpret_cast<std::uintptr_t>(this),
          .part = position_of(leaf)};
}

base::Where Source::where(const Leaf& leaf) const {
  const Stored& stored_tensor = stored(leaf);
  return files_->where(stored_tensor.item).at("key " + base::quote(stored_tensor.name));
}

}  // namespace tenfold::detail::formats::dcp
