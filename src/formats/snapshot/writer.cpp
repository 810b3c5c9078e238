#include "formats/snapshot/writer.hpp"

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/hash/checksum.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/shared/leaf_writer.hpp"
#include "formats/shared/progress.hpp"
#include "formats/shared/zip_archive.hpp"
#include "os/fs/file.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold::detail::formats::snapshot {
namespace {

/// Files that are open at once.
constexpr std::size_t kOpenFiles = 64;
/// Threads that wait for the device at once; they hardly use a core.
constexpr int kSyncThreads = 32;

/// The folder at `path` below `root`, "" for a copy of the root.
os::Directory open_folder(const os::Directory& root, std::string_view path) {
  os::Directory folder = root.duplicate();
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    os::Directory next = os::Directory::open_at(folder, std::string(path.substr(0, slash)));
    folder = std::move(next);
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
  }
  return folder;
}

std::string_view folder_of(std::string_view location) {
  const std::size_t slash = location.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : location.substr(0, slash);
}

std::string name_of(std::string_view location) {
  return std::string(location.substr(location.rfind('/') + 1));
}

class Writer {
 public:
  Writer(const Plan& plan, os::Directory& root, const SnapshotOptions& options)
      : plan_(plan),
        root_(root),
        options_(options),
        progress_(options.monitor, plan.num_bytes, "save") {}

  void run() {
    create_folders();
    const std::span<const DataFile> files(plan_.files);
    for (std::size_t i = 0; i < files.size(); i += kOpenFiles) {
      write_files(files.subspan(i, std::min(kOpenFiles, files.size() - i)));
    }
    if (options_.durable) sync_folders();
    if (!plan_.notes.empty()) {
      write_text(plan_.notes, std::string(kNotesName));
      if (options_.checksums) add_lines(plan_.notes, std::string(kNotesName));
    }
    const std::string text = write_manifest(plan_.manifest);
    if (options_.checksums) {
      add_lines(text, std::string(kMetadataName));
      write_text(checksums_text(lines_), std::string(kChecksumsName));
    }
    // What marks the snapshot as complete, for readers that go by that, comes last.
    write_text(text, std::string(kMetadataName));
    progress_.finish();
  }

 private:
  void create_folders() {
    for (const DataFile& file : plan_.files) {
      for (std::string_view path = folder_of(file.location); !path.empty();
           path = folder_of(path)) {
        if (!folders_.emplace(path).second) break;
      }
    }
    // In order, so that a folder comes before what is in it.
    for (const std::string& path : folders_) {
      open_folder(root_, folder_of(path)).create_directory(name_of(path));
    }
  }

  void write_files(std::span<const DataFile> files) {
    std::vector<os::File> opened;
    opened.reserve(files.size());
    std::vector<LeafWrite> writes;
    std::vector<const DataFile*> written_in;
    for (const DataFile& file : files) {
      const os::Directory folder = open_folder(root_, folder_of(file.location));
      opened.push_back(os::File::create_at(folder, name_of(file.location)));
      for (const Placement& part : file.parts) {
        LeafWrite write;
        write.leaf = &part.leaf;
        write.file = &opened.back();
        write.file_offset_bytes = part.file_offset_bytes;
        write.size_bytes = part.size_bytes;
        write.leaf_offset_bytes = part.leaf_offset_bytes;
        writes.push_back(std::move(write));
        written_in.push_back(&file);
      }
    }
    for (std::size_t i = 0; i < files.size(); ++i) write_object(opened[i], files[i]);
    write_leaves(writes, xxh3_if(options_.checksums), options_.num_threads, progress_,
                 options_.durable);
    for (std::size_t i = 0; i < writes.size(); ++i) add_lines(writes[i], *written_in[i]);
    if (options_.durable) {
      for (os::File& file : opened) file.start_writeback();
      os::parallel_for(
          opened.size(), kSyncThreads, [&](std::size_t i) { opened[i].sync(); },
          [&] { progress_.poll(); });
    }
    for (os::File& file : opened) file.close_written();
  }

  void write_object(os::File& file, const DataFile& of) {
    if (of.object.empty()) return;
    WriteRequest request;
    request.durable = options_.durable;
    request.num_threads = options_.num_threads;
    write_zip_archive(file, of.object, request, progress_);
    if (!options_.checksums) return;
    const std::uint64_t size_bytes = file.size_bytes();
    for (std::uint64_t at = 0; at < size_bytes; at += base::kChecksumBlockBytes) {
      const std::uint64_t size = std::min(base::kChecksumBlockBytes, size_bytes - at);
      lines_.push_back({checksum_of(file, at, size, nullptr), at, size, of.location});
    }
  }

  void sync_folders() {
    const std::vector<std::string> folders(folders_.begin(), folders_.end());
    os::parallel_for(
        folders.size(), kSyncThreads, [&](std::size_t i) { open_folder(root_, folders[i]).sync(); },
        [&] { progress_.poll(); });
  }

  void write_text(const std::string& text, const std::string& name) {
    os::File file = os::File::create_at(root_, name);
    file.write_at(0, std::as_bytes(std::span(text)));
    if (options_.durable) file.sync();
    file.close_written();
  }

  void add_lines(const LeafWrite& write, const DataFile& file) {
    std::uint64_t done = 0;
    for (const std::uint64_t checksum : write.block_checksums) {
      const std::uint64_t size = std::min(base::kChecksumBlockBytes, write.size_bytes - done);
      lines_.push_back({checksum, write.file_offset_bytes + done, size, file.location});
      done += size;
    }
  }

  void add_lines(const std::string& text, const std::string& name) {
    std::vector<std::uint64_t> checksums;
    const auto bytes = std::as_bytes(std::span(text));
    for (std::size_t at = 0; at < bytes.size(); at += base::kChecksumBlockBytes) {
      const std::size_t size = std::min<std::size_t>(base::kChecksumBlockBytes, bytes.size() - at);
      checksums.push_back(base::xxh3(bytes.subspan(at, size)));
    }
    append_lines(lines_, name, text.size(), checksums);
  }

  const Plan& plan_;
  os::Directory& root_;
  const SnapshotOptions& options_;
  Progress progress_;
  std::set<std::string> folders_;  ///< relative to the root
  std::vector<ChecksumLine> lines_;
};

}  // namespace

void write_plan(const Plan& plan, os::Directory& root, const SnapshotOptions& options) {
  Writer(plan, root, options).run();
}

}  // namespace tenfold::detail::formats::snapshot
