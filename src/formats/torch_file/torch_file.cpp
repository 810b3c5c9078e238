// Reads files of torch.save. Since torch 1.6, torch.save writes a zip archive (archive.hpp) of a
// pickle and storages by default; earlier versions wrote another layout, which is also read. The
// pickle is parsed as data (tree.hpp), never executed. write.cpp writes archives.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/pickle/pickle.hpp"
#include "codecs/zip/zip.hpp"
#include "formats/format.hpp"
#include "formats/shared/file_part.hpp"
#include "formats/shared/mapped_zip.hpp"
#include "formats/shared/object_file.hpp"
#include "formats/shared/problem.hpp"
#include "formats/shared/progress.hpp"
#include "formats/shared/tensor_file.hpp"
#include "formats/shared/tree_notes.hpp"
#include "formats/shared/zip_check.hpp"
#include "formats/shared/zip_inflate.hpp"
#include "formats/torch_file/archive.hpp"
#include "formats/torch_file/storages.hpp"
#include "formats/torch_file/tensor.hpp"
#include "formats/torch_file/tree.hpp"
#include "formats/torch_file/write.hpp"
#include "os/fs/file.hpp"
#include "os/memory/mapping.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold::detail::formats::torch_file {
namespace {

using codecs::PickleGraph;
using codecs::PickleKind;
using codecs::PickleNode;

constexpr std::int64_t kProtocol = 1001;
constexpr std::uint64_t kCountBytes = 8;

struct LegacyExtent {
  std::string key;
  std::uint64_t begin = 0;
  std::uint64_t size_bytes = 0;
};

class LegacyStorages final : public Storages {
 public:
  LegacyStorages(os::File file, std::vector<LegacyExtent> extents)
      : file_(std::move(file), 0, 0), extents_(std::move(extents)) {
    for (std::size_t i = 0; i < extents_.size(); ++i) numbers_.emplace(extents_[i].key, i);
  }

  std::optional<std::size_t> find(std::string_view key) const override {
    const auto found = numbers_.find(key);
    if (found == numbers_.end()) return std::nullopt;
    return found->second;
  }
  std::uint64_t size_bytes(std::size_t storage) const override {
    return extents_[storage].size_bytes;
  }
  Buffer bytes(std::size_t storage) override {
    return file_.copy(extents_[storage].begin, extents_[storage].size_bytes);
  }
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    const StorageRange& range = range_of(leaf);
    file_.file().read_at(extents_[range.storage].begin + range.begin + offset_bytes, into);
  }
  StoredRange identity(const Leaf& leaf) override {
    const StorageRange& range = range_of(leaf);
    return StoredRange::in(file_.file().info_at_open(), extents_[range.storage].begin + range.begin,
                           range.size_bytes);
  }
  base::Where where(const Leaf& leaf) const override {
    return {file_.file().display(), "storage " + base::quote(extents_[range_of(leaf).storage].key)};
  }

 private:
  TensorFile file_;
  std::vector<LegacyExtent> extents_;
  std::unordered_map<std::string_view, std::size_t> numbers_;
};

/// Reads the pickles at the start of a file in the layout of torch before 1.6, one by one.
class Front {
 public:
  Front(std::string_view bytes, base::Where where) : bytes_(bytes), where_(std::move(where)) {}

  PickleGraph next(const std::string& part) {
    PickleGraph graph = codecs::read_pickle(bytes_.substr(at_), where_.at(part));
    at_ += static_cast<std::size_t>(graph.size_bytes);
    return graph;
  }
  std::uint64_t position() const noexcept { return at_; }

 private:
  std::string_view bytes_;
  base::Where where_;
  std::size_t at_ = 0;
};

void check_machine(const PickleGraph& graph, const base::Where& where) {
  const PickleNode about = graph.at(graph.root);
  if (about.kind == PickleKind::dict) {
    for (std::size_t i = 0; i + 1 < about.items.size(); i += 2) {
      const PickleNode value = graph.at(about.items[i + 1]);
      if (graph.at(about.items[i]).text != "little_endian") continue;
      if (value.kind == PickleKind::boolean && value.integer != 0) return;
      throw base::unsupported(where).part("byte order").expected("little-endian").found("another");
    }
  }
  throw base::corrupt(where)
      .part("byte order")
      .expected("\"little_endian\" in a dict")
      .found("none");
}

/// Returns the itemsize of each storage that the object's pickle uses, by storage key; 1 for an
/// untyped storage.
std::unordered_map<std::string, std::uint64_t> item_bytes_of(const Pickle& pickle) {
  std::unordered_map<std::string, std::uint64_t> sizes;
  for (const PickleNode& node : pickle.graph().nodes) {
    if (node.kind != PickleKind::persistent) continue;
    const PickleNode tuple = pickle.at(node.items[0]);
    if (tuple.kind != PickleKind::tuple || tuple.items.size() < 3) continue;
    const PickleNode type = pickle.at(tuple.items[1]);
    const auto key = pickle.text(tuple.items[2]);
    if (type.kind != PickleKind::global || !key) continue;
    auto dtype = storage_dtype(type.text, type.name);
    if (!dtype) dtype = quantized_dtype(type.text, type.name);
    sizes.try_emplace(std::string(*key), dtype ? itemsize(*dtype) : 1);
  }
  return sizes;
}

std::vector<LegacyExtent> extents_of(const os::File& file, const Pickle& object,
                                     const PickleGraph& keys, std::uint64_t at) {
  const base::Where& where = file.display();
  const std::uint64_t file_bytes = file.size_bytes();
  const Pickle list(keys, where);
  const PickleNode root = keys.at(keys.root);
  if (root.kind != PickleKind::list) {
    throw base::corrupt(where)
        .part("storage keys")
        .expected("a list")
        .found("an object of another type");
  }
  const auto sizes = item_bytes_of(object);
  std::vector<LegacyExtent> extents;
  for (const std::uint32_t item : root.items) {
    const auto key = list.text(item);
    const auto known = key ? sizes.find(std::string(*key)) : sizes.end();
    if (known == sizes.end()) {
      throw base::corrupt(where)
          .part("storage keys")
          .expected("the key of a storage that the object uses")
          .found((key ? base::quote(*key) : list.describe(item)));
    }
    std::optional<std::uint64_t> size_bytes;
    if (base::range_fits(at, kCountBytes, file_bytes)) {
      std::uint64_t count = 0;
      file.read_at(at, std::as_writable_bytes(std::span(&count, 1)));
      at += kCountBytes;
      size_bytes = base::checked_mul(count, known->second);
    }
    if (!size_bytes || !base::range_fits(at, *size_bytes, file_bytes)) {
      throw base::corrupt(where)
          .part("storage ", base::quote(*key))
          .problem("does not fit the file")
          .expected("at most ", file_bytes - at, " bytes")
          .found((size_bytes ? std::to_string(*size_bytes) : std::string("more")))
          .remedy("the file may be truncated");
    }
    extents.push_back({std::string(*key), at, *size_bytes});
    at += *size_bytes;
  }
  return extents;
}

/// True if `head`, the first bytes of a file, is from the layout of torch before 1.6, which starts
/// with a pickle of a magic number. Accepts pickle protocols 2 to 5; torch uses 2 by default.
bool is_legacy_head(std::string_view head) noexcept {
  constexpr std::string_view kMagic("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e", 13);
  constexpr char kFrame = '\x95';  // opcode before a size of 8 bytes, from protocol 4 on
  if (head.size() < 3 || head[0] != '\x80' || head[1] < 2 || head[1] > 5) return false;
  head.remove_prefix(2);
  if (head[0] == kFrame) head.remove_prefix(std::min<std::size_t>(9, head.size()));
  return head.starts_with(kMagic);
}

/// Opens a file in the layout of torch before 1.6. The file starts with five pickles: a magic
/// number, the protocol number 1001, a dict that describes the machine, the saved object, and a
/// list of storage keys. Then each storage follows: the number of its elements in 8 bytes, and the
/// elements. Storages may be unaligned, so a storage is copied into memory when one of its tensors
/// is first mapped.
TensorDict open_legacy(os::File file) {
  const base::Where where = file.display();
  const Buffer front = os::map_file(file, 0, file.size_bytes(), os::MapKind::read_only);
  Front pickles({reinterpret_cast<const char*>(front.data()), front.size_bytes()}, where);
  pickles.next("magic number");
  const PickleGraph protocol = pickles.next("protocol");
  const PickleNode number = protocol.at(protocol.root);
  if (number.kind != PickleKind::integer || number.integer != kProtocol) {
    throw base::unsupported(where).part("protocol").expected("1001").found("another");
  }
  check_machine(pickles.next("machine"), where);
  const PickleGraph graph = pickles.next("object");
  const PickleGraph keys = pickles.next("storage keys");
  std::vector<LegacyExtent> extents =
      extents_of(file, Pickle(graph, where), keys, pickles.position());
  const auto storages = std::make_shared<LegacyStorages>(std::move(file), std::move(extents));
  return build_tree(graph, storages, where);
}

constexpr auto kSuffixes =
    std::to_array<std::string_view>({".pt", ".pth", ".pth.tar", ".bin", ".ckpt"});
constexpr std::string_view kTarMagic = "ustar";
constexpr std::size_t kTarMagicOffset = 257;

/// The storages of an archive: slices of one mapping of the archive, or copies of records that are
/// deflated or unaligned.
class ArchiveStorages final : public Storages {
 public:
  ArchiveStorages(FilePart file, Archive archive)
      : zip_(std::move(file)), info_(part().file()->info()), archive_(std::move(archive)) {}

  const FilePart& part() const noexcept { return zip_.part(); }
  codecs::ZipInput input() const { return zip_.input(); }
  /// The archive. read_local_headers() sets the data offsets of the entries in its directory.
  const Archive& archive() const noexcept { return archive_; }
  /// Reads the local headers once, when they are first needed. Throws Error(corrupt).
  void read_local_headers() {
    if (is_located_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(locating_);
    if (is_located_.load(std::memory_order_relaxed)) return;
    codecs::read_zip_local_headers(input(), codecs::ZipLimits(), archive_.directory);
    is_located_.store(true, std::memory_order_release);
  }

  std::optional<std::size_t> find(std::string_view key) const override {
    const codecs::ZipEntry* found = archive_.find("data/" + std::string(key));
    if (found == nullptr) return std::nullopt;
    return static_cast<std::size_t>(found - archive_.directory.entries.data());
  }
  std::uint64_t size_bytes(std::size_t storage) const override { return entry(storage).size_bytes; }
  Buffer bytes(std::size_t storage) override {
    read_local_headers();
    const codecs::ZipEntry& found = entry(storage);
    if (found.size_bytes == 0) return {};
    // torch aligns records to 64 bytes. Records of other tools may be unaligned, and are copied.
    if (zip_.can_map(found)) return zip_.map(found.data_offset, found.size_bytes);
    return zip_.copy(storage, [&] { return copy_of(found); });
  }
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    const StorageRange& range = range_of(leaf);
    const codecs::ZipEntry& found = entry(range.storage);
    if (found.method == codecs::ZipMethod::stored) {
      part().read_at(found.data_offset + range.begin + offset_bytes, into);
      return;
    }
    zip_.read_copy(range.storage, range.begin + offset_bytes, into, [&] { return copy_of(found); });
  }
  bool is_one_mapping() const noexcept override { return true; }
  StoredRange identity(const Leaf& leaf) override {
    const StorageRange& range = range_of(leaf);
    StoredRange stored = StoredRange::in(info_, range.begin, range.size_bytes);
    if (stored == StoredRange{}) return stored;
    // The elements in a deflated record have no offset in the file. So all records are identified
    // by the offsets of their headers.
    stored.part = part().begin + entry(range.storage).header_offset;
    return stored;
  }
  base::Where where(const Leaf& leaf) const override {
    return record(entry(range_of(leaf).storage));
  }
  base::Where record(const codecs::ZipEntry& entry) const {
    return part().where.at("record " + base::quote(entry.name));
  }

 private:
  const codecs::ZipEntry& entry(std::size_t storage) const {
    return archive_.directory.entries[storage];
  }
  Buffer copy_of(const codecs::ZipEntry& entry) const {
    return read_entry_into_memory(input(), entry, record(entry),
                                  "zip the archive's records again without compression");
  }

  MappedZip zip_;
  os::FileInfo info_;
  Archive archive_;
  std::mutex locating_;
  std::atomic<bool> is_located_{false};
};

/// The storages of a file of pickle.dump(), which has none.
class NoStorages final : public Storages {
 public:
  explicit NoStorages(base::Where where) : where_(std::move(where)) {}

  std::optional<std::size_t> find(std::string_view) const override { return std::nullopt; }
  std::uint64_t size_bytes(std::size_t) const override { return 0; }
  Buffer bytes(std::size_t) override { return {}; }
  void read(const Leaf&, std::uint64_t, std::span<std::byte>) override {}
  base::Where where(const Leaf&) const override { return where_; }

 private:
  base::Where where_;
};

std::string head_of(const FilePart& part, std::uint64_t size_bytes) {
  std::string head(static_cast<std::size_t>(std::min(size_bytes, part.size_bytes)), '\0');
  head.resize(part.file()->read_some_at(part.begin, std::as_writable_bytes(std::span(head))));
  return head;
}

/// Throws unless the file starts like a zip archive. The message says whether the file has an older
/// layout of torch, or is a plain pickle.
void refuse_other_layouts(const FilePart& file) {
  const std::string head = head_of(file, kTarMagicOffset + kTarMagic.size());
  const auto refuse = [&](ErrorCode code) {
    return base::fail(code, file.where)
        .problem("not an archive of torch.save")
        .expected("a zip archive");
  };
  if (head.empty()) throw refuse(ErrorCode::corrupt).found("an empty file");
  if (head.size() > kTarMagicOffset && head.substr(kTarMagicOffset) == kTarMagic) {
    throw refuse(ErrorCode::unsupported)
        .found("the tar layout of torch before 0.1.10")
        .remedy("load it with a later version of torch and save it again");
  }
  if (is_legacy_head(head)) {
    throw refuse(ErrorCode::unsupported)
        .found("the layout of torch before 1.6, which is supported only in a separate file")
        .remedy("load it with torch and save it again");
  }
  if (head[0] == '\x80') {
    throw refuse(ErrorCode::unsupported).found("a plain pickle, which is not executed");
  }
  if (!head.starts_with("PK")) {
    throw refuse(ErrorCode::corrupt)
        .found("a file that starts with ", base::quote(head.substr(0, 8)));
  }
}

/// Opens an archive. `directory`: its central headers, if the caller has already read them.
std::shared_ptr<ArchiveStorages> open_archive(
    FilePart file, std::optional<codecs::ZipDirectory> directory = std::nullopt) {
  refuse_other_layouts(file);
  Archive archive = read_archive(zip_input(file), std::move(directory));
  return std::make_shared<ArchiveStorages>(std::move(file), std::move(archive));
}

/// Calls build() with the graph of `data.pkl`, and returns its result. The strings of the graph are
/// valid only during the call.
template <class Build>
auto with_graph(const ArchiveStorages& storages, const Build& build) {
  const std::vector<std::byte> bytes = read_pickle(storages.input(), storages.archive());
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return build(codecs::read_pickle(text, storages.part().where.at("record \"data.pkl\"")));
}

/// From this number of entries on, another thread reads local headers while the tree is built.
constexpr std::size_t kMinEntriesOfTwoThreads = 1000;

/// Calls build() and storages.read_local_headers(), in parallel if the archive has many entries.
/// Returns the result of build().
template <class Build>
auto with_local_headers(ArchiveStorages& storages, const Build& build) {
  const bool is_large = storages.archive().directory.entries.size() >= kMinEntriesOfTwoThreads;
  std::optional<decltype(build())> built;
  std::exception_ptr error_of_headers;
  std::exception_ptr error_of_build;
  os::parallel_for(2, is_large ? os::num_threads_for(0) : 1, [&](std::size_t i) {
    try {
      if (i == 0) {
        built.emplace(build());
      } else {
        storages.read_local_headers();
      }
    } catch (...) {
      (i == 0 ? error_of_build : error_of_headers) = std::current_exception();
    }
  });
  // In a damaged archive, build() and read_local_headers() may both fail. The error of the headers
  // is more informative.
  if (error_of_headers) std::rethrow_exception(error_of_headers);
  if (error_of_build) std::rethrow_exception(error_of_build);
  return *std::move(built);
}

void apply_notes(const ArchiveStorages& storages, TensorDict& tree) {
  const codecs::ZipEntry* notes = storages.archive().find(kNotesRecord);
  if (notes == nullptr) return;
  const Buffer bytes =
      read_entry_into_memory(storages.input(), *notes, storages.record(*notes), "save it again");
  apply_tree_notes({reinterpret_cast<const char*>(bytes.data()), bytes.size_bytes()},
                   storages.part().where.at("record " + base::quote(notes->name)), tree);
}

TensorDict tree_of(const std::shared_ptr<ArchiveStorages>& storages) {
  TensorDict tree = with_local_headers(*storages, [&] {
    return with_graph(*storages, [&](const codecs::PickleGraph& graph) {
      return build_tree(graph, storages, storages->part().where);
    });
  });
  apply_notes(*storages, tree);
  return tree;
}

TensorDict::Item object_in(FilePart file) {
  const std::shared_ptr<ArchiveStorages> storages = open_archive(std::move(file));
  storages->read_local_headers();
  return with_graph(*storages, [&](const codecs::PickleGraph& graph) {
    return build_object(graph, storages, storages->part().where);
  });
}

/// torch writes data.pkl first, so the name of the first record usually identifies the format. If
/// it does not, the directory is read.
bool probe(const FileHead& head) {
  if (is_legacy_head(head.head())) return true;
  if (head.first_zip_name().ends_with("/data.pkl")) return true;
  const codecs::ZipDirectory* directory = head.zip_directory();
  if (directory == nullptr || directory->entries.empty()) return false;
  const std::string& first = directory->entries[0].name;
  return directory->find(first.substr(0, first.find('/')) + "/data.pkl") != nullptr;
}

TensorDict open(const FileHead& head, const OpenRequest& /*request*/) {
  if (is_legacy_head(head.head())) return open_legacy(head.take_file());
  std::optional<codecs::ZipDirectory> directory = head.take_zip_directory();
  return tree_of(open_archive(whole_file(head.take_file()), std::move(directory)));
}

void count_leaves(VerifyReport& report, const TensorDict& tree) {
  tree.for_each_leaf([&](const KeyPath&, const TensorDict::Item& item) {
    const auto* leaf = std::get_if<Leaf>(&item);
    if (leaf == nullptr) return;
    ++report.num_leaves;
    report.num_bytes += leaf->nbytes();
  });
}

void verify_archive(VerifyReport& report, const VerifyRequest& request, Progress& progress,
                    FilePart file) {
  const std::shared_ptr<ArchiveStorages> storages = open_archive(std::move(file));
  storages->read_local_headers();
  const auto record = [&](const codecs::ZipEntry& entry) { return storages->record(entry); };
  verify_zip(
      storages->input(), storages->archive().directory,
      {.where = record,
       .is_wanted =
           [&](const codecs::ZipEntry& entry) { return !request.skips(record(entry).text()); }},
      request.num_threads, progress, report);
  if (report.problems.empty()) count_leaves(report, tree_of(storages));
}

/// Checks the structure of the archive, and the CRC-32 of every record that the request does not
/// skip. If no problem was found, also checks that a tree can be built from the pickle and that its
/// tensors fit their storages. Only the tree is checked if the file has the layout of torch before
/// 1.6, because that layout has no checksums.
VerifyReport verify(const Path& path, const VerifyRequest& request) {
  VerifyReport report;
  const FileHead head(path);
  Progress progress(request.monitor, head.info().size_bytes, path.filename().string());
  try {
    if (is_legacy_head(head.head())) {
      count_leaves(report, open_legacy(head.take_file()));
    } else {
      verify_archive(report, request, progress, whole_file(head.take_file()));
    }
  } catch (const Error& error) {
    add_problem(report, error, {path.string(), "structure"});
  }
  progress.finish();
  return report;
}

}  // namespace

const Format kFormat = {
    .name = "pt",
    .noun = "a file of torch.save",
    .suffixes = kSuffixes,
    .holds_sparse = true,
    .bare_roots = BareRoots::some,
    .probe = probe,
    .open_tree = open,
    .check_tree = check_tree,
    .write_tree = write_tree,
    .verify = verify,
};

}  // namespace tenfold::detail::formats::torch_file

namespace tenfold::detail::formats {

TensorDict::Item read_object_file(FileOpener file) {
  return torch_file::object_in(whole_file(std::move(file)));
}

TensorDict::Item read_object_item(FileOpener file, std::uint64_t begin, std::uint64_t size_bytes) {
  const base::Where where(file()->display(), "item at byte " + std::to_string(begin));
  return torch_file::object_in({std::move(file), begin, size_bytes, where});
}

TensorDict::Item read_pickle_file(const os::File& file) {
  const Buffer whole = os::map_file(file, 0, file.size_bytes(), os::MapKind::read_only);
  const std::string_view bytes(reinterpret_cast<const char*>(whole.data()), whole.size_bytes());
  return torch_file::build_object(codecs::read_pickle(bytes, file.display()),
                                  std::make_shared<torch_file::NoStorages>(file.display()),
                                  file.display());
}

std::string describe_object(const TensorDict::Item& item) {
  if (const auto* leaf = std::get_if<Leaf>(&item)) {
    return "a tensor of " + to_string(leaf->dtype()) + " " + base::list_text(leaf->shape());
  }
  const auto* node = std::get_if<TensorDict>(&item);
  if (node == nullptr) return "a JSON value";
  if (node->kind() != NodeKind::opaque) return "a container";
  return "an object of " + base::quote(node->info().class_name);
}

}  // namespace tenfold::detail::formats
