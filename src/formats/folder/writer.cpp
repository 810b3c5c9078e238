#include "formats/folder/writer.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/warnings.hpp>

#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "core/tensor/leaf_bytes.hpp"
#include "formats/folder/keys.hpp"
#include "formats/shared/earlier_version.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/shared/leaf_writer.hpp"
#include "formats/shared/progress.hpp"
#include "os/fs/file.hpp"
#include "os/process.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold::detail::formats::folder {
namespace {

/// Leaves that are larger than this are written by write_leaves(), which divides the work on one
/// leaf among the threads. Any other file, and a file of zeros, is written by one thread.
constexpr std::uint64_t kSmallBytes = std::uint64_t{1} << 20;
/// Large enough to write a small file with one call. The page cache then uses large folios.
constexpr std::size_t kScratchBytes = kSmallBytes;
/// Number of small files that one thread takes at a time. A small number balances the load of the
/// threads.
constexpr std::size_t kRunFiles = 32;
/// Number of threads that sync files. Many threads sync many small files much faster than one
/// thread (docs/performance/saving.md), and use almost no CPU time.
constexpr int kSyncThreads = 32;
constexpr std::size_t kSyncRunFiles = 8;
/// Maximum number of large files that are written at once.
constexpr std::size_t kOpenLeaves = 64;

/// Opens folders of the plan. Keeps the last opened folder and folders above it open, because the
/// files are in depth-first order.
class FolderChain {
 public:
  FolderChain(const Plan& plan, os::Directory& root) : plan_(plan), root_(root) {}

  os::Directory& at(std::size_t folder) {
    if (folder == 0) {
      chain_.clear();
      return root_;
    }
    for (std::size_t i = chain_.size(); i > 0; --i) {
      if (chain_[i - 1].first != folder) continue;
      chain_.resize(i);
      return *chain_.back().second;
    }
    os::Directory& parent = at(plan_.folders[folder].parent);
    auto opened =
        std::make_unique<os::Directory>(os::Directory::open_at(parent, plan_.folders[folder].name));
    chain_.emplace_back(folder, std::move(opened));
    if (chain_.size() > kMaxOpen) chain_.erase(chain_.begin());
    return *chain_.back().second;
  }

 private:
  /// Many threads have a chain each, and a tree may have 512 levels. So do not keep all levels
  /// open.
  static constexpr std::size_t kMaxOpen = 8;

  const Plan& plan_;
  os::Directory& root_;
  std::vector<std::pair<std::size_t, std::unique_ptr<os::Directory>>> chain_;
};

class Writer {
 public:
  Writer(const Plan& plan, os::Directory& root, const WriteRequest& request)
      : plan_(plan),
        root_(root),
        request_(request),
        num_threads_(os::num_threads_for(request.num_threads)),
        progress_(request.monitor, plan.leaf_bytes, "save"),
        checksums_(request.checksums ? plan.files.size() : 0),
        is_linked_(plan.files.size(), false) {}

  void run() {
    create_folders();
    if (request_.earlier != nullptr && request_.checksums && !request_.zeros) {
      link_unchanged_files(*request_.earlier);
    }
    sort_out();
    write_small(small_);
    for (std::size_t i = 0; i < large_.size(); i += kOpenLeaves) {
      write_large(std::span(large_).subspan(i, std::min(kOpenLeaves, large_.size() - i)));
    }
    link_aliases();
    if (request_.checksums) write_checksums();
    if (request_.durable) sync_all();
    progress_.finish();
  }

 private:
  bool is_hole(const Plan::File& file) const {
    return request_.zeros && file.is_leaf && !file.is_sizes;
  }

  void create_folders() {
    FolderChain chain(plan_, root_);
    for (std::size_t i = 1; i < plan_.folders.size(); ++i) {
      chain.at(plan_.folders[i].parent).create_directory(plan_.folders[i].name);
    }
  }

  /// For each leaf that has the same bytes in the earlier version, creates a hard link to the file
  /// there, so that the file need not be written.
  void link_unchanged_files(const EarlierVersion& earlier) {
    os::Directory old_root = os::Directory::try_open_at(earlier.folder, earlier.name);
    // If the earlier version is open in mode r+, link nothing: writes to the earlier version would
    // also change the linked files of the new one.
    if (!old_root.valid() || old_root.try_lock_exclusive() == os::LockResult::held) return;
    auto stored = stored_checksums(old_root);
    std::vector<LeafComparison> compared;
    std::vector<std::size_t> numbers;
    for (std::size_t i = 0; i < plan_.files.size(); ++i) {
      const Plan::File& file = plan_.files[i];
      if (!file.is_leaf || file.same_as != Plan::kNone) continue;
      const auto found = stored.find(plan_.path_of(file));
      if (found == stored.end() || found->second.size_bytes != file.size_bytes) continue;
      compared.push_back({&file.leaf, std::move(found->second.blocks)});
      numbers.push_back(i);
    }
    compare_with_checksums(compared, CompareUntil::each_is_known, num_threads_, progress_);
    FolderChain from(plan_, old_root);
    FolderChain to(plan_, root_);
    // Inodes linked so far. Two tensors of the new version with links to one inode would be
    // aliases.
    std::set<std::uint64_t> used;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (!compared[i].is_equal) continue;
      const Plan::File& file = plan_.files[numbers[i]];
      os::Directory& folder = to.at(file.folder);
      os::File linked = link_unchanged(folder, file.name, earlier, from.at(file.folder), file.name,
                                       file.size_bytes);
      if (!linked.valid()) continue;
      if (!used.insert(linked.info().inode).second) {
        folder.remove_file(file.name);
        continue;
      }
      is_linked_[numbers[i]] = true;
      checksums_[numbers[i]] = std::move(compared[i].stored);
      progress_.add(file.size_bytes);
      if (request_.durable && !earlier.is_synced) {
        make_room(1);
        open_.push_back(std::move(linked));
      }
    }
  }

  /// The stored checksums of a file that `%checksums` lists block by block.
  struct Stored {
    std::uint64_t size_bytes = 0;
    std::vector<std::uint64_t> blocks;
  };

  static std::map<std::string, Stored> stored_checksums(const os::Directory& root) {
    std::map<std::string, Stored> files;
    std::set<std::string> others;
    for (const ChecksumLine& line : read_checksums(root)) {
      Stored& file = files[line.path];
      const bool follows = !line.box && line.offset_bytes == file.size_bytes &&
                           line.offset_bytes % base::kChecksumBlockBytes == 0 &&
                           line.size_bytes > 0 && line.size_bytes <= base::kChecksumBlockBytes;
      if (!follows) others.insert(line.path);
      file.size_bytes += line.size_bytes;
      file.blocks.push_back(line.checksum);
    }
    for (const std::string& path : others) files.erase(path);
    return files;
  }

  /// Returns the lines of `%checksums`, or none if it cannot be read. Without lines, all files are
  /// written.
  static std::vector<ChecksumLine> read_checksums(const os::Directory& root) {
    const std::string name(kChecksumsName);
    try {
      const os::File file = os::File::try_open_read_at(root, name);
      if (!file.valid()) return {};
      return parse_checksums(file.read_all(kMaxChecksumsBytes), file.display());
    } catch (const Error&) {
      return {};
    }
  }

  void sort_out() {
    for (std::size_t i = 0; i < plan_.files.size(); ++i) {
      const Plan::File& file = plan_.files[i];
      if (is_linked_[i]) continue;
      if (file.same_as != Plan::kNone && !is_hole(file)) {
        aliases_.push_back(i);
      } else if (file.is_leaf && file.size_bytes > kSmallBytes && !is_hole(file)) {
        large_.push_back(i);
      } else {
        small_.push_back(i);
      }
    }
  }

  /// Calls work(chain, index) for each index below `count` on `num_threads` threads. One task
  /// handles `run_length` consecutive indices.
  template <class Work>
  void for_runs(std::size_t count, int num_threads, std::size_t run_length, const Work& work) {
    const std::size_t num_runs = (count + run_length - 1) / run_length;
    os::parallel_for(
        num_runs, num_threads,
        [&](std::size_t run) {
          FolderChain chain(plan_, root_);
          const std::size_t end = std::min(count, (run + 1) * run_length);
          for (std::size_t i = run * run_length; i < end; ++i) work(chain, i);
        },
        [&] { progress_.poll(); });
  }

  void write_small(std::span<const std::size_t> numbers) {
    for (std::size_t begin = 0; begin < numbers.size(); begin += max_open_) {
      const auto some = numbers.subspan(begin, std::min(max_open_, numbers.size() - begin));
      make_room(some.size());
      std::vector<os::File> files(some.size());
      for_runs(some.size(), num_threads_, kRunFiles, [&](FolderChain& chain, std::size_t i) {
        const Plan::File& file = plan_.files[some[i]];
        files[i] = os::File::create_at(chain.at(file.folder), file.name);
        write_one(files[i], file, some[i]);
        written(files[i]);
      });
      keep_open(std::move(files));
    }
  }

  /// Called when a file is complete. In a durable save, starts its writeback, which continues while
  /// other files are written; otherwise closes it.
  void written(os::File& file) const {
    if (request_.durable) {
      file.start_writeback();
    } else {
      file.close_written();
    }
  }

  /// In a durable save, keeps the files open for sync_files(). A file must be synced through the
  /// descriptor that wrote it: the kernel guarantees to report a writeback error only to
  /// descriptors that were open when the error occurred.
  void keep_open(std::vector<os::File> files) {
    if (request_.durable) std::move(files.begin(), files.end(), std::back_inserter(open_));
  }

  void make_room(std::size_t num_files) {
    if (open_.size() + num_files > max_open_) sync_files();
  }

  void write_one(os::File& out, const Plan::File& file, std::size_t number) {
    if (is_hole(file)) {
      out.truncate(file.size_bytes);
      if (request_.reserve) static_cast<void>(out.reserve());
      return;
    }
    if (!file.is_leaf) {
      const auto bytes = std::as_bytes(std::span(file.text));
      out.write_at(0, bytes);
      if (!request_.checksums) return;
      base::BlockSums sums;
      sums.add(bytes);
      checksums_[number] = sums.checksums();
      return;
    }
    std::uint64_t position = 0;
    base::BlockSums sums;
    for_each_piece(file.leaf, 0, file.size_bytes, scratch_for(file),
                   [&](std::span<const std::byte> piece) {
                     out.write_at(position, piece);
                     position += piece.size();
                     progress_.add(piece.size());
                     if (request_.checksums) sums.add(piece);
                   });
    if (request_.checksums) checksums_[number] = sums.checksums();
  }

  static std::span<std::byte> scratch_for(const Plan::File& file) {
    // One buffer per thread. The bytes of a leaf in memory are usually passed on without a copy.
    thread_local std::vector<std::byte> scratch;
    const auto wanted =
        static_cast<std::size_t>(std::min<std::uint64_t>(file.size_bytes, kScratchBytes));
    constexpr std::size_t kOneElement = 16;
    if (scratch.size() < std::max(wanted, kOneElement))
      scratch.resize(std::max(wanted, kOneElement));
    return scratch;
  }

  void write_large(std::span<const std::size_t> numbers) {
    make_room(numbers.size());
    std::vector<os::File> files;
    files.reserve(numbers.size());
    std::vector<LeafWrite> writes;
    FolderChain chain(plan_, root_);
    for (const std::size_t number : numbers) {
      const Plan::File& file = plan_.files[number];
      files.push_back(os::File::create_at(chain.at(file.folder), file.name));
      LeafWrite write;
      write.leaf = &file.leaf;
      write.file = &files.back();
      write.size_bytes = file.size_bytes;
      writes.push_back(std::move(write));
    }
    write_leaves(writes, xxh3_if(request_.checksums), request_.num_threads, progress_,
                 request_.durable);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      written(files[i]);
      if (request_.checksums) checksums_[numbers[i]] = std::move(writes[i].block_checksums);
    }
    keep_open(std::move(files));
  }

  /// Creates aliases as hard links of one file, or as copies if hard links cannot be made.
  void link_aliases() {
    for (const std::size_t number : aliases_) {
      const Plan::File& file = plan_.files[number];
      const Plan::File& held = plan_.files[file.same_as];
      FolderChain from(plan_, root_);
      FolderChain to(plan_, root_);
      if (to.at(file.folder).link_from(from.at(held.folder), held.name, file.name)) {
        if (request_.checksums) checksums_[number] = checksums_[file.same_as];
      } else if (file.size_bytes > kSmallBytes) {
        write_large({&number, 1});
      } else {
        write_small({&number, 1});
      }
    }
  }

  void write_checksums() {
    std::vector<ChecksumLine> lines;
    for (std::size_t i = 0; i < plan_.files.size(); ++i) {
      append_lines(lines, plan_.path_of(plan_.files[i]), plan_.files[i].size_bytes, checksums_[i]);
    }
    const std::string text = checksums_text(lines);
    os::File out = os::File::create_at(root_, std::string(kChecksumsName));
    out.write_at(0, std::as_bytes(std::span(text)));
    if (request_.durable) out.sync();
    out.close_written();
  }

  /// Syncs and closes the open files. Writeback was started while other files were written, so most
  /// data is on disk already, and one journal commit of the file system covers many inodes.
  void sync_files() {
    for_runs(open_.size(), kSyncThreads, kSyncRunFiles, [&](FolderChain&, std::size_t i) {
      open_[i].sync();
      open_[i].close_written();
    });
    open_.clear();
  }

  void sync_all() {
    sync_files();
    const std::size_t num_runs = (plan_.folders.size() + kSyncRunFiles - 1) / kSyncRunFiles;
    os::parallel_for(
        num_runs, kSyncThreads,
        [&](std::size_t run) {
          FolderChain chain(plan_, root_);
          const std::size_t end = std::min(plan_.folders.size(), (run + 1) * kSyncRunFiles);
          // Index 0 is the root, which is synced when it is published.
          for (std::size_t i = std::max<std::size_t>(1, run * kSyncRunFiles); i < end; ++i) {
            chain.at(i).sync();
          }
        },
        [&] { progress_.poll(); });
  }

  const Plan& plan_;
  os::Directory& root_;
  const WriteRequest& request_;
  int num_threads_;
  Progress progress_;
  std::vector<std::vector<std::uint64_t>> checksums_;  ///< of each file's blocks
  std::vector<bool> is_linked_;  ///< files that are links to the earlier version
  std::vector<std::size_t> small_;
  std::vector<std::size_t> large_;
  std::vector<std::size_t> aliases_;
  std::size_t max_open_ = os::num_files_to_keep_open();
  std::vector<os::File> open_;  ///< files to be synced
};

}  // namespace

void write_plan(const Plan& plan, os::Directory& root, const WriteRequest& request) {
  Writer(plan, root, request).run();
}

void warn_of_unloadable(const Plan& plan, const Path& path) {
  if (!plan.unloadable_by_upstream.empty()) {
    warn(path.string() + ": tensor " + base::quote(plan.unloadable_by_upstream) +
         ": tensordict 0.15.3 cannot load float8 and float4 from a folder; tenfold can, and "
         "both can load them from a safetensors file");
  }
}

std::uint64_t written_bytes(const Plan& plan, const WriteRequest& request) noexcept {
  return request.zeros && !request.reserve ? 0 : plan.leaf_bytes;
}

}  // namespace tenfold::detail::formats::folder
