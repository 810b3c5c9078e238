#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "codecs/pickle/pickle.hpp"
#include "codecs/zip/structure.hpp"
#include "codecs/zip/zip.hpp"
#include "formats/format.hpp"
#include "formats/shared/object_file.hpp"
#include "formats/shared/progress.hpp"
#include "formats/shared/tree_notes.hpp"
#include "formats/shared/zip_check.hpp"
#include "formats/shared/zip_inflate.hpp"
#include "formats/torch_file/archive.hpp"
#include "formats/torch_file/legacy.hpp"
#include "formats/torch_file/storages.hpp"
#include "formats/torch_file/tree.hpp"
#include "formats/torch_file/write.hpp"
#include "os/fs/file.hpp"
#include "os/memory/mapping.hpp"
#include "os/thread/thread_pool.hpp"

// Files of torch.save: an archive (torch_file_archive) of storages and of a pickle that is read as
// data (torch_file_tree), or the layout of older versions (torch_file_legacy). torch_file_write
// writes archives.

namespace tenfold::detail::formats::torch_file {
namespace {

constexpr std::array<std::string_view, 3> kSuffixes = {".pt", ".pth", ".bin"};
constexpr std::string_view kZipMagic = "PK\x03\x04";
constexpr std::string_view kTarMagic = "ustar";
constexpr std::size_t kTarMagicOffset = 257;

/// An archive that is a file, or lies within one.
struct ArchiveFile {
  FileOpener file;
  std::uint64_t begin = 0;
  std::uint64_t size_bytes = 0;
  std::string where;  ///< for messages

  explicit ArchiveFile(os::File whole)
      : ArchiveFile([kept = std::make_shared<const os::File>(std::move(whole))] { return kept; }) {}
  explicit ArchiveFile(FileOpener whole) : file(std::move(whole)) {
    const auto opened = file();
    size_bytes = opened->size_bytes();
    where = opened->display();
  }
  ArchiveFile(FileOpener outer, std::uint64_t begin_bytes, std::uint64_t size)
      : file(std::move(outer)),
        begin(begin_bytes),
        size_bytes(size),
        where(file()->display() + ": item at byte " + std::to_string(begin)) {}

  codecs::ZipInput input() const {
    codecs::ZipInput input;
    input.where = where;
    input.size_bytes = size_bytes;
    input.read = [this](std::uint64_t offset, std::span<std::byte> into) {
      file()->read_at(begin + offset, into);
    };
    return input;
  }
  std::string head(std::size_t most) const {
    std::string head(static_cast<std::size_t>(std::min<std::uint64_t>(most, size_bytes)), '\0');
    head.resize(file()->read_some_at(begin, std::as_writable_bytes(std::span(head))));
    return head;
  }
};

/// The storages of an archive, over one mapping of the file.
class ArchiveStorages final : public Storages {
 public:
  ArchiveStorages(ArchiveFile file, Archive archive)
      : file_(std::move(file)),
        info_(file_.file()->info()),
        archive_(std::move(archive)),
        copies_(archive_.directory.entries.size()) {}

  const ArchiveFile& file() const noexcept { return file_; }
  /// Names and sizes; where entries lie once local headers were read.
  const Archive& archive() const noexcept { return archive_; }
  /// By whoever needs them first, once. Throws Error(corrupt).
  void read_local_headers() {
    if (is_located_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(locating_);
    if (is_located_.load(std::memory_order_relaxed)) return;
    codecs::read_zip_local_headers(file_.input(), codecs::ZipLimits(), archive_.directory);
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
    if (!lies_in_place(found)) return copy_of(storage);
    std::call_once(mapped_, [this] {
      mapping_ =
          os::map_file(*file_.file(), file_.begin, file_.size_bytes, os::MapKind::private_copy);
    });
    return mapping_.slice(static_cast<std::size_t>(found.data_offset),
                          static_cast<std::size_t>(found.size_bytes));
  }
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    const StorageRange& range = range_of(leaf);
    const codecs::ZipEntry& found = entry(range.storage);
    if (found.method == codecs::ZipMethod::stored) {
      file_.file()->read_at(file_.begin + found.data_offset + range.begin + offset_bytes, into);
      return;
    }
    const Buffer copy = copy_of(range.storage);
    std::memcpy(into.data(), copy.data() + range.begin + offset_bytes, into.size());
  }
  void will_need(const Leaf& leaf) override {
    const StorageRange& range = range_of(leaf);
    const codecs::ZipEntry& found = entry(range.storage);
    if (found.method != codecs::ZipMethod::stored) return;
    file_.file()->will_need(file_.begin + found.data_offset + range.begin, range.size_bytes);
  }
  bool is_one_mapping() const noexcept override { return true; }
  Identity identity(const Leaf& leaf) override {
    const StorageRange& range = range_of(leaf);
    if (range.size_bytes == 0) return {};
    // What is deflated lies nowhere in the file, so the record is told from the others first.
    return {.device = info_.device,
            .inode = info_.inode,
            .part = file_.begin + entry(range.storage).header_offset,
            .offset_bytes = range.begin,
            .size_bytes = range.size_bytes};
  }
  std::string where(const Leaf& leaf) const override {
    return record(entry(range_of(leaf).storage));
  }
  std::string record(const codecs::ZipEntry& entry) const {
    return file_.where + ": record " + base::quote(entry.name);
  }

 private:
  const codecs::ZipEntry& entry(std::size_t storage) const {
    return archive_.directory.entries[storage];
  }
  /// torch aligns to 64 from where the archive begins. Other tools do not, and what they deflate
  /// lies nowhere.
  bool lies_in_place(const codecs::ZipEntry& entry) const {
    return entry.method == codecs::ZipMethod::stored && (file_.begin + entry.data_offset) % 16 == 0;
  }
  Buffer copy_of(std::size_t storage) {
    const std::lock_guard lock(copies_mutex_);
    Buffer& copy = copies_[storage];
    if (copy.size_bytes() != 0) return copy;
    const codecs::ZipEntry& found = entry(storage);
    copy = read_entry_into_memory(file_.input(), found, record(found),
                                  "zip the archive's records again without compression");
    return copy;
  }

  ArchiveFile file_;
  os::FileInfo info_;
  Archive archive_;
  std::mutex locating_;
  std::atomic<bool> is_located_{false};
  std::once_flag mapped_;
  Buffer mapping_;
  std::mutex copies_mutex_;
  std::vector<Buffer> copies_;  ///< of storages that cannot be mapped
};

std::string head_of(const os::File& file, std::size_t size_bytes) {
  std::string head(size_bytes, '\0');
  head.resize(file.read_some_at(0, std::as_writable_bytes(std::span(head))));
  return head;
}

/// Says what a file that is no archive is, or returns.
void refuse_other_layouts(const ArchiveFile& file) {
  const std::string head = file.head(kTarMagicOffset + kTarMagic.size());
  const auto refuse = [&](ErrorCode code, const std::string& found) {
    throw Error(code, file.where +
                          ": not an archive of torch.save: expected a zip archive, found " + found);
  };
  if (head.empty()) refuse(ErrorCode::corrupt, "an empty file");
  if (head.size() > kTarMagicOffset && head.substr(kTarMagicOffset) == kTarMagic) {
    refuse(ErrorCode::unsupported,
           "the tar layout before torch 0.1.10; save it again by a later torch");
  }
  if (head[0] == '\x80') refuse(ErrorCode::unsupported, "a plain pickle, which is not executed");
  if (!head.starts_with("PK")) {
    refuse(ErrorCode::corrupt, "a file that starts with " + base::quote(head.substr(0, 8)));
  }
}

bool is_legacy(const os::File& file) { return is_legacy_head(head_of(file, kLegacyHeadBytes)); }

std::shared_ptr<ArchiveStorages> open_archive(ArchiveFile file) {
  refuse_other_layouts(file);
  Archive archive = read_archive(file.input());
  return std::make_shared<ArchiveStorages>(std::move(file), std::move(archive));
}

/// Calls `build` with the graph of `data.pkl`, whose text lives as long as the call.
template <class Build>
auto with_graph(const ArchiveStorages& storages, const Build& build) {
  const std::vector<std::byte> bytes = read_pickle(storages.file().input(), storages.archive());
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return build(codecs::read_pickle(text, storages.file().where + ": record \"data.pkl\""));
}

/// Local headers of as many are worth another thread, which reads them while the tree is built.
constexpr std::size_t kMinEntriesOfTwoThreads = 1000;

/// What `build` makes of the storages, when their local headers were found to be right.
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
  // If the archive is damaged, what was read of it says less.
  if (error_of_headers) std::rethrow_exception(error_of_headers);
  if (error_of_build) std::rethrow_exception(error_of_build);
  return *std::move(built);
}

void apply_notes(const ArchiveStorages& storages, TensorDict& tree) {
  const codecs::ZipEntry* notes = storages.archive().find(kNotesRecord);
  if (notes == nullptr) return;
  const Buffer bytes = read_entry_into_memory(storages.file().input(), *notes,
                                              storages.record(*notes), "save it again");
  apply_tree_notes({reinterpret_cast<const char*>(bytes.data()), bytes.size_bytes()},
                   storages.file().where + ": record " + base::quote(notes->name), tree);
}

TensorDict tree_of(const std::shared_ptr<ArchiveStorages>& storages, const Path& path) {
  TensorDict tree = with_local_headers(*storages, [&] {
    return with_graph(*storages, [&](const codecs::PickleGraph& graph) {
      return build_tree(graph, storages, storages->file().where, path.stem().string());
    });
  });
  apply_notes(*storages, tree);
  return tree;
}

TensorDict::Item object_in(ArchiveFile file) {
  const std::shared_ptr<ArchiveStorages> storages = open_archive(std::move(file));
  storages->read_local_headers();
  return with_graph(*storages, [&](const codecs::PickleGraph& graph) {
    return build_object(graph, storages, storages->file().where);
  });
}

/// torch writes data.pkl first, so mostly the first record's name tells. Otherwise the directory
/// does.
bool probe(const Path& path) {
  if (!os::file_info(path).is_regular) return false;
  os::File file = os::File::open_read(path);
  constexpr std::size_t kHeaderBytes = 30;
  constexpr std::size_t kLengthAt = 26;
  const std::string head = head_of(file, 4096);
  if (is_legacy_head(head)) return true;
  if (!head.starts_with(kZipMagic) || head.size() < kHeaderBytes) return false;
  const std::size_t length = static_cast<unsigned char>(head[kLengthAt]) |
                             static_cast<std::size_t>(static_cast<unsigned char>(head[27])) << 8U;
  if (std::string_view(head).substr(kHeaderBytes, length).ends_with("/data.pkl")) return true;
  try {
    const codecs::ZipDirectory directory =
        codecs::read_zip_directory(ArchiveFile(std::move(file)).input(), codecs::ZipLimits());
    if (directory.entries.empty()) return false;
    const std::string& first = directory.entries[0].name;
    return directory.find(first.substr(0, first.find('/')) + "/data.pkl") != nullptr;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::io) throw;
    return false;
  }
}

TensorDict open(const Path& path, const OpenRequest& request) {
  if (request.mode == Mode::write_through) {
    throw Error(ErrorCode::unsupported,
                path.string() +
                    ": mode: a file of torch.save cannot be written through: expected \"r\" or "
                    "\"c\", found \"r+\"; save it as a memmap folder");
  }
  os::File file = os::File::open_read(path);
  if (is_legacy(file)) return open_legacy(std::move(file), path.stem().string());
  return tree_of(open_archive(ArchiveFile(std::move(file))), path);
}

void add_problem(VerifyReport& report, const Path& path, std::string part, const Error& error) {
  if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported) throw;
  std::string what = error.what();
  for (const std::string& prefix : {path.string() + ": ", part + ": "}) {
    if (what.starts_with(prefix)) what.erase(0, prefix.size());
  }
  report.problems.push_back({path.string(), std::move(part), std::move(what)});
}

void count_leaves(VerifyReport& report, const TensorDict& tree) {
  tree.for_each_leaf([&](const KeyPath&, const TensorDict::Item& item) {
    if (std::holds_alternative<Leaf>(item)) ++report.num_leaves;
  });
}

void verify_archive(VerifyReport& report, const VerifyRequest& request, Progress& progress,
                    os::File file, const Path& path) {
  const std::shared_ptr<ArchiveStorages> storages = open_archive(ArchiveFile(std::move(file)));
  storages->read_local_headers();
  try {
    codecs::check_zip_structure(storages->file().input(), storages->archive().directory,
                                "save it again");
  } catch (const Error& error) {
    add_problem(report, path, "archive", error);
  }
  std::vector<const codecs::ZipEntry*> entries;
  for (const codecs::ZipEntry& entry : storages->archive().directory.entries) {
    if (!request.skips(storages->record(entry))) entries.push_back(&entry);
  }
  const std::vector<std::exception_ptr> errors =
      check_zip_entries(storages->file().input(), entries, request.num_threads, progress);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    try {
      if (errors[i]) std::rethrow_exception(errors[i]);
      ++report.num_checksums;
      report.num_bytes += entries[i]->size_bytes;
    } catch (const Error& error) {
      add_problem(report, path, entries[i]->name, error);
    }
  }
  if (report.problems.empty()) count_leaves(report, tree_of(storages, path));
}

/// An archive's CRC-32 of every record, and that the pickle makes a tree whose tensors fit. The
/// layout of older versions has no checksums.
VerifyReport verify(const Path& path, const VerifyRequest& request) {
  VerifyReport report;
  Progress progress(request.monitor, os::file_info(path).size_bytes, path.filename().string());
  try {
    os::File file = os::File::open_read(path);
    if (is_legacy(file)) {
      report.num_bytes = file.size_bytes();
      count_leaves(report, open_legacy(std::move(file), path.stem().string()));
    } else {
      verify_archive(report, request, progress, std::move(file), path);
    }
  } catch (const Error& error) {
    add_problem(report, path, "structure", error);
  }
  progress.finish();
  return report;
}

}  // namespace

const Format kFormat = {"pt", kSuffixes, probe, open, check_tree, write_tree, verify, true};

}  // namespace tenfold::detail::formats::torch_file

namespace tenfold::detail::formats {

TensorDict::Item read_object_file(FileOpener file) {
  return torch_file::object_in(torch_file::ArchiveFile(std::move(file)));
}

TensorDict::Item read_object_item(FileOpener file, std::uint64_t begin, std::uint64_t size_bytes) {
  return torch_file::object_in(torch_file::ArchiveFile(std::move(file), begin, size_bytes));
}

std::string describe_object(const TensorDict::Item& item) {
  if (const auto* leaf = std::get_if<Leaf>(&item)) {
    return "a tensor of " + std::string(name(leaf->dtype())) + " " + base::list_text(leaf->shape());
  }
  const auto* node = std::get_if<TensorDict>(&item);
  if (node == nullptr) return "a JSON value";
  if (node->kind() != NodeKind::opaque) return "a container";
  return "an object of " + base::quote(node->info().class_name);
}

}  // namespace tenfold::detail::formats
