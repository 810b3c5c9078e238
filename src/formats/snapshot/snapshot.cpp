// The folders of torchsnapshot: `.snapshot_metadata`, a document that lists every entry of the tree
// with its value or the location of its bytes, and files of raw bytes. This file opens, writes and
// verifies folders. The other parts:
//   manifest     parse, validate and write the document
//   leaf_source  tensors whose bytes are stored raw in the files
//   tree         converts the document to a tree of lazy leaves
//   plan         converts a tree to the document and the files to write
// Values and tensors that torchsnapshot stores with torch.save (None, tuples, complex tensors,
// tensors of dtypes that it has no name for), and long bytes objects, are in files of torch.save,
// one object in each file (formats/shared/object_file.hpp). Equal values can share a file.

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/snapshot.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "core/tree/assembled_source.hpp"
#include "core/tree/node.hpp"
#include "formats/format.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/shared/folder_verify.hpp"
#include "formats/shared/leaf_writer.hpp"
#include "formats/shared/problem.hpp"
#include "formats/shared/progress.hpp"
#include "formats/shared/tree_notes.hpp"
#include "formats/shared/zip_archive.hpp"
#include "formats/snapshot/folder.hpp"
#include "formats/snapshot/leaf_source.hpp"
#include "formats/snapshot/plan.hpp"
#include "formats/snapshot/tree.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold::detail::formats::snapshot {
namespace {

/// Maximum number of data files that are open and written at the same time.
constexpr std::size_t kOpenFiles = 64;
/// Number of threads that fsync files and folders. They mostly wait for the disk.
constexpr int kSyncThreads = 32;

/// Opens the folder at `path` below `root`. An empty path is the root.
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
  Writer(const Plan& plan, const os::Directory& root, const SnapshotOptions& options)
      : plan_(plan),
        root_(root),
        options_(options),
        progress_(options.monitor, plan.num_bytes, "save") {}

  std::vector<ChecksumLine> run() {
    create_folders();
    const std::span<const DataFile> files(plan_.files);
    for (std::size_t i = 0; i < files.size(); i += kOpenFiles) {
      write_files(files.subspan(i, std::min(kOpenFiles, files.size() - i)));
    }
    if (options_.durable) sync_folders();
    progress_.finish();
    return std::move(lines_);
  }

 private:
  void create_folders() {
    for (const DataFile& file : plan_.files) {
      for (std::string_view path = folder_of(file.location); !path.empty();
           path = folder_of(path)) {
        if (!folders_.emplace(path).second) break;
      }
    }
    // Sorted, so that a folder precedes its content.
    for (const std::string& path : folders_) {
      try {
        open_folder(root_, folder_of(path)).create_directory(name_of(path));
      } catch (const Error& error) {
        // Several ranks create the common parents of their folders: another rank may be first.
        if (error.system_errno() != EEXIST || plan_.manifest.world_size == 1) throw;
      }
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

  void add_lines(const LeafWrite& write, const DataFile& file) {
    std::uint64_t done = 0;
    for (const std::uint64_t checksum : write.block_checksums) {
      const std::uint64_t size = std::min(base::kChecksumBlockBytes, write.size_bytes - done);
      lines_.push_back({checksum, write.file_offset_bytes + done, size, file.location});
      done += size;
    }
  }

  const Plan& plan_;
  const os::Directory& root_;
  const SnapshotOptions& options_;
  Progress progress_;
  std::set<std::string> folders_;  ///< relative to the root
  std::vector<ChecksumLine> lines_;
};

void add_lines(std::vector<ChecksumLine>& lines, const std::string& text, const std::string& name) {
  base::BlockSums sums;
  sums.add(std::as_bytes(std::span(text)));
  append_lines(lines, name, text.size(), sums.checksums());
}

void write_text(const os::Directory& root, const std::string& text, const std::string& name,
                bool durable) {
  os::File file = os::File::create_at(root, name);
  file.write_at(0, std::as_bytes(std::span(text)));
  if (durable) file.sync();
  file.close_written();
}

/// Returns the paths of the files of the snapshot in `root`: its documents, and the files that its
/// metadata names.
std::set<std::string> named_files(const os::Directory& root) {
  std::set<std::string> named = {std::string(kMetadataName), std::string(kChecksumsName),
                                 std::string(kNotesName)};
  try {
    const Manifest manifest = parse_manifest(read_metadata(root), root.display());
    for (const auto& [path, entry] : manifest.entries) {
      named.insert(entry.tensor.location);
      for (const Piece& piece : entry.pieces) named.insert(piece.tensor.location);
    }
  } catch (const Error& error) {
    // Unreadable metadata names no files, so that all data files are foreign.
    if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported) throw;
  }
  return named;
}

bool has_files(const os::Directory& folder) {
  return std::ranges::any_of(folder.list(), [&](const std::string& name) {
    const auto info = folder.entry_info(name);
    if (!info || is_hidden_name(name)) return false;
    return !info->is_directory || has_files(os::Directory::open_at(folder, name));
  });
}

/// Adds the paths of the files below `folder` that are not in `named`, except temporary files of
/// saves. For a sub-folder with such files and none of `named`, adds only the path of the
/// sub-folder, because it may have millions of files.
void add_foreign(const os::Directory& folder, const std::string& prefix,
                 const std::set<std::string>& named, std::vector<std::string>& foreign) {
  std::vector<std::string> names = folder.list();
  std::ranges::sort(names);
  for (const std::string& name : names) {
    const auto info = folder.entry_info(name);
    if (!info || is_hidden_name(name)) continue;
    const std::string path = prefix + name;
    if (!info->is_directory) {
      if (!named.contains(path)) foreign.push_back(path);
      continue;
    }
    const os::Directory inner = os::Directory::open_at(folder, name);
    const auto below = named.lower_bound(path + "/");
    if (below != named.end() && below->starts_with(path + "/")) {
      add_foreign(inner, path + "/", named, foreign);
    } else if (has_files(inner)) {
      foreign.push_back(path);
    }
  }
}

bool probe(const FileHead& head) { return head.has_file(kMetadataName); }

TensorDict open(const FileHead& head, const OpenRequest& /*request*/) {
  const Path& path = head.path();
  const os::Directory root = head.take_folder();
  auto manifest = std::make_shared<const Manifest>(
      parse_manifest(read_metadata(root), root.display_of(std::string(kMetadataName))));
  const std::vector<std::string> lost = unreachable(*manifest);
  if (!lost.empty()) {
    warn(path.string() + ": entries that no container names are ignored: expected none, found " +
         base::quote(lost.front()) +
         (lost.size() > 1 ? " and " + std::to_string(lost.size() - 1) + " more" : ""));
  }
  return tree_of(std::move(manifest), root, path.string());
}

void check(const TensorDict& tree) { plan_snapshot(tree, {}); }

void write(const TensorDict& tree, const Path& path, const WriteRequest& request) {
  SnapshotOptions options;
  options.durable = request.durable;
  options.checksums = request.checksums;
  options.num_threads = request.num_threads;
  options.monitor = request.monitor;
  write_folder(tree, path, options);
}

/// Accesses every entry of the tree, and checks the sizes of the files of raw tensors. Adds the
/// errors of both to `report`, except Error(io), which is thrown.
class Verifier {
 public:
  Verifier(const VerifyRequest& request, std::string where)
      : progress_(request.monitor, 0, "verify"), where_(std::move(where)) {}

  void add(const Error& error) {
    if (error.code() == ErrorCode::io) throw error;
    report.problems.push_back(problem_of(error, {where_, "file"}));
  }

  void node(Node& node) {
    for (std::size_t i = 0; i < node.entries.size(); ++i) {
      progress_.poll();
      try {
        const TensorDict::Item item = node.item(i);
        if (const auto* held = std::get_if<Leaf>(&item)) {
          leaf(*held);
        } else if (const auto* child = std::get_if<TensorDict>(&item)) {
          this->node(*node_of(*child));
        }
      } catch (const Error& error) {
        add(error);
      }
    }
  }

  VerifyReport report;

 private:
  void leaf(const Leaf& leaf) {
    ++report.num_leaves;
    const std::uint64_t size_bytes = leaf.nbytes();
    report.num_bytes += size_bytes;
    if (size_bytes == 0) return;
    if (auto* raw = dynamic_cast<RawSource*>(source_of(leaf).get())) return raw->check(leaf);
    // For a tensor in pieces, check the size of each piece's file.
    if (auto* whole = dynamic_cast<AssembledSource*>(source_of(leaf).get())) {
      for (const TensorPiece& piece : whole->pieces()) this->piece(piece.leaf);
    }
  }
  static void piece(const Leaf& leaf) {
    if (auto* raw = dynamic_cast<RawSource*>(source_of(leaf).get())) raw->check(leaf);
  }

  Progress progress_;
  std::string where_;
};

VerifyReport verify(const Path& path, const VerifyRequest& request) {
  const os::Directory root = os::Directory::open(path);
  Verifier verifier(request, path.string());
  try {
    const std::string where = root.display_of(std::string(kMetadataName));
    const auto manifest =
        std::make_shared<const Manifest>(parse_manifest(read_metadata(root), where));
    for (const std::string& lost : unreachable(*manifest)) {
      verifier.add(base::corrupt(where)
                       .part("entry ", base::quote(lost))
                       .expected("a container that names it")
                       .found("none"));
    }
    verifier.node(request.filter != nullptr ? *node_of(request.filter->selected())
                                            : *node_of(tree_of(manifest, root, path.string())));
  } catch (const Error& error) {
    verifier.add(error);
  }
  check_folder_checksums(root, request, verifier.report);
  return std::move(verifier.report);
}

}  // namespace

std::string read_metadata(const os::Directory& root) {
  const os::File file = os::File::try_open_read_at(root, std::string(kMetadataName));
  if (!file.valid()) {
    throw base::corrupt(root.display())
        .problem("no snapshot, or one that was not finished")
        .expected("the file \".snapshot_metadata\"")
        .found("none");
  }
  return file.read_all(kMaxMetadataBytes);
}

std::vector<std::string> foreign_in(const os::Directory& folder) {
  std::set<std::string> named;
  if (folder.entry_info(std::string(kMetadataName))) named = named_files(folder);
  std::vector<std::string> foreign;
  add_foreign(folder, "", named, foreign);
  return foreign;
}

void require_replaceable(const Path& path) {
  refuse_foreign(path, foreign_at(path, foreign_in), "only what the metadata of a snapshot names");
}

TensorDict tree_of(std::shared_ptr<const Manifest> manifest, const os::Directory& root,
                   const std::string& where, std::optional<std::int64_t> for_rank) {
  constexpr std::uint64_t kMaxNotesBytes = std::uint64_t{256} << 20;
  TensorDict tree = build_tree(std::move(manifest), root.duplicate(), where, for_rank);
  const os::File notes = os::File::try_open_read_at(root, std::string(kNotesName));
  if (notes.valid()) apply_tree_notes(notes.read_all(kMaxNotesBytes), notes.display(), tree);
  return tree;
}

std::vector<ChecksumLine> write_data_files(const Plan& plan, const os::Directory& root,
                                           const SnapshotOptions& options) {
  return Writer(plan, root, options).run();
}

void write_documents(const Manifest& manifest, const std::string& notes,
                     std::vector<ChecksumLine> lines, const os::Directory& root,
                     const SnapshotOptions& options) {
  if (!notes.empty()) {
    write_text(root, notes, std::string(kNotesName), options.durable);
    if (options.checksums) add_lines(lines, notes, std::string(kNotesName));
  }
  const std::string text = write_manifest(manifest);
  if (options.checksums) {
    add_lines(lines, text, std::string(kMetadataName));
    write_text(root, checksums_text(lines), std::string(kChecksumsName), options.durable);
  }
  write_text(root, text, std::string(kMetadataName), options.durable);
}

void write_folder(const TensorDict& tree, const Path& path, const SnapshotOptions& options) {
  const Plan plan = plan_snapshot(tree, options);
  require_replaceable(path);
  FolderReplacement replacement(path, plan.num_bytes, foreign_in);
  write_documents(plan.manifest, plan.notes, write_data_files(plan, replacement.folder(), options),
                  replacement.folder(), options);
  replacement.publish(options.durable);
}

const Format kFormat = {
    .name = "snapshot",
    .noun = "a snapshot",
    .suffixes = {},
    .holds_sparse = true,
    .probe = probe,
    .open_tree = open,
    .check_tree = check,
    .write_tree = write,
    .verify = verify,
};

}  // namespace tenfold::detail::formats::snapshot
