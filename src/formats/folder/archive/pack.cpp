#include "formats/folder/archive/pack.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/zip/zip.hpp"
#include "core/tree/leaf_source.hpp"
#include "formats/folder/append/commit_file.hpp"
#include "formats/folder/append/commit_page.hpp"
#include "formats/folder/archive/archive.hpp"
#include "formats/folder/archive/writer.hpp"
#include "formats/folder/checksums.hpp"
#include "formats/folder/files.hpp"
#include "formats/folder/inventory.hpp"
#include "formats/folder/keys.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/folder_verify.hpp"
#include "formats/shared/progress.hpp"
#include "formats/shared/zip_archive.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold::detail::formats::folder {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

/// The files of a folder as leaves of dtype uint8. position_of() returns the index of the file.
class PackedFiles final : public LeafSource {
 public:
  explicit PackedFiles(os::Directory root) : root_(std::move(root)) {}

  std::uint64_t add(std::string path) {
    paths_.push_back(std::move(path));
    return paths_.size() - 1;
  }
  Buffer map(const Leaf& leaf) override {
    Buffer bytes = Buffer::allocate(static_cast<std::size_t>(leaf.nbytes()));
    read(leaf, 0, bytes.mutable_bytes());
    return bytes;
  }
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    open_below(root_, paths_[position_of(leaf)]).read_at(offset_bytes, into);
  }
  base::Where where(const Leaf& leaf) const override {
    return root_.display_of(paths_[position_of(leaf)]);
  }

 private:
  os::Directory root_;
  std::vector<std::string> paths_;
};

/// Lists the files of a folder and its sub-folders as archive entries, in the order that
/// save_archive() uses.
class Lister {
 public:
  Lister(const os::Directory& root, int deflate_level)
      : files_(std::make_shared<PackedFiles>(root.duplicate())), deflate_level_(deflate_level) {}

  std::vector<ZipArchiveEntry> run(const os::Directory& root) {
    list(root, "", 0);
    return std::move(entries_);
  }

 private:
  void list(const os::Directory& folder, const std::string& prefix, std::size_t depth) {
    if (depth > Folder::kMaxDepth) {
      throw base::unsupported(folder.display())
          .problem("folders nested too deep")
          .expected("at most ", Folder::kMaxDepth, " levels");
    }
    std::vector<std::string> names = folder.list();
    std::ranges::sort(names, {}, [](const std::string& name) {
      return std::pair(name != kMetaName, std::string_view(name));
    });
    std::vector<std::string> folders;
    for (std::string& name : names) {
      const auto info = folder.entry_info(name);
      if (!info || is_leftover_in(folder, name, info->is_directory)) continue;
      // While rows are added to a folder, its row count is in `%commit`, which readers of archives
      // ignore.
      if (name == kCommitName) refuse_growing(folder);
      if (info->is_directory) {
        folders.push_back(std::move(name));
      } else if (info->is_regular) {
        add(prefix + name, info->size_bytes);
      } else {
        throw base::unsupported(folder.display_of(name))
            .problem("cannot be packed")
            .expected("a file or a folder")
            .found("a link or a special file");
      }
    }
    for (const std::string& name : folders) {
      list(os::Directory::open_at(folder, name), prefix + name + "/", depth + 1);
    }
  }

  void add(std::string path, std::uint64_t size_bytes) {
    ZipArchiveEntry entry;
    entry.name = path;
    if (is_leaf_file(path)) {
      entry.alignment = kArchiveAlignment;
      entry.deflate_level = deflate_level_;
    }
    const std::uint64_t number = files_->add(std::move(path));
    entry.leaf = stored_leaf(DType::uint8, {static_cast<std::int64_t>(size_bytes)}, files_, number);
    entries_.push_back(std::move(entry));
  }

  std::shared_ptr<PackedFiles> files_;
  int deflate_level_;
  std::vector<ZipArchiveEntry> entries_;
};

/// Throws if the archive is inside the folder, because the archive would be packed, too.
void refuse_inside(const Path& folder, const Path& archive) {
  if (os::path_within(folder, archive).empty()) return;
  throw base::invalid_argument(archive.string())
      .part("archive")
      .expected("a path outside of the packed folder")
      .found("one within ", folder.string());
}

/// Returns the folders that contain entries, parents first. Throws Error(unsupported) if an entry
/// is nested deeper than Folder::kMaxDepth.
std::set<std::string> folders_of(const Archive& archive) {
  std::set<std::string> folders;
  for (const codecs::ZipEntry& entry : archive.entries()) {
    const auto levels = static_cast<std::size_t>(std::ranges::count(entry.name, '/'));
    if (levels > Folder::kMaxDepth) {
      throw base::unsupported(archive.file().display())
          .part("entry ", base::quote(entry.name))
          .problem("nested too deep")
          .expected("at most ", Folder::kMaxDepth, " levels")
          .found(levels);
    }
    for (std::size_t slash = entry.name.find('/'); slash != std::string::npos;
         slash = entry.name.find('/', slash + 1)) {
      folders.insert(entry.name.substr(0, slash));
    }
  }
  return folders;
}

/// Opens the folder that contains `path`, component by component. Returns the folder and the last
/// component.
std::pair<os::Directory, std::string> parent_of(const os::Directory& root, std::string_view path) {
  os::Directory folder = root.duplicate();
  for (std::size_t slash = path.find('/'); slash != std::string_view::npos;
       slash = path.find('/')) {
    folder = os::Directory::open_at(folder, std::string(path.substr(0, slash)));
    path.remove_prefix(slash + 1);
  }
  return {std::move(folder), std::string(path)};
}

class Unpacker {
 public:
  Unpacker(const Archive& archive, os::Directory& root, const WriteRequest& request)
      : archive_(archive),
        root_(root),
        request_(request),
        progress_(request.monitor, archive.info().size_bytes, "unpack") {}

  void run() {
    const std::set<std::string> folders = folders_of(archive_);
    for (const std::string& path : folders) {
      auto [parent, name] = parent_of(root_, path);
      parent.create_directory(name);
    }
    os::parallel_for(
        archive_.entries().size(), os::num_threads_for(request_.num_threads),
        [&](std::size_t i) { write(archive_.entries()[i]); }, [&] { progress_.poll(); });
    if (!request_.durable) return progress_.finish();
    for (const std::string& path : folders) {
      auto [parent, name] = parent_of(root_, path);
      os::Directory::open_at(parent, name).sync();
    }
    progress_.finish();
  }

 private:
  void write(const codecs::ZipEntry& entry) {
    if (entry.name.ends_with('/')) return;
    const auto [parent, name] = parent_of(root_, entry.name);
    os::File file = os::File::create_at(parent, name);
    if (entry.method == codecs::ZipMethod::deflated) {
      std::uint64_t done = 0;
      codecs::check_zip_entry(archive_.input(), entry, [&](std::span<const std::byte> piece) {
        file.write_at(done, piece);
        done += piece.size();
      });
    } else {
      copy(entry, file);
    }
    progress_.add(entry.stored_bytes);
    if (request_.durable) file.sync();
    file.close_written();
  }

  void copy(const codecs::ZipEntry& entry, os::File& file) const {
    std::vector<std::byte> scratch(
        static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, entry.size_bytes)));
    std::uint32_t crc = 0;
    for (std::uint64_t done = 0; done < entry.size_bytes; done += scratch.size()) {
      const auto piece = std::span(scratch).first(static_cast<std::size_t>(
          std::min<std::uint64_t>(scratch.size(), entry.size_bytes - done)));
      archive_.file().read_at(entry.data_offset + done, piece);
      crc = codecs::crc32(piece, crc);
      file.write_at(done, piece);
    }
    if (crc == entry.crc32) return;
    throw base::corrupt(archive_.file().display())
        .part("entry ", base::quote(entry.name))
        .problem("CRC-32 differs")
        .expected(fmt::format("{:08x}", entry.crc32))
        .found(fmt::format("{:08x}", crc))
        .remedy("if the bytes are right, refresh_archive_checksums corrects the CRC-32");
  }

  const Archive& archive_;
  os::Directory& root_;
  const WriteRequest& request_;
  Progress progress_;
};

}  // namespace

void pack_folder(const Path& folder, const Path& archive, int deflate_level,
                 const WriteRequest& request) {
  const os::Directory root = os::Directory::open(folder);
  const auto meta = root.entry_info(std::string(kMetaName));
  if (!meta || !meta->is_regular) {
    throw base::invalid_argument(folder.string())
        .expected("the folder of a TensorDict")
        .found("no meta.json");
  }
  refuse_inside(folder, archive);
  save_entries(Lister(root, deflate_level).run(root), archive, request);
}

void unpack_archive(const Path& path, const Path& folder, const WriteRequest& request) {
  require_replaceable(folder);
  const std::shared_ptr<Archive> archive = Archive::open(path, Mode::read);
  std::uint64_t new_bytes = 0;
  for (const codecs::ZipEntry& entry : archive->entries()) {
    // Count only stored entries: the declared size of a deflated entry is not trusted before the
    // entry is inflated.
    if (entry.method == codecs::ZipMethod::stored) new_bytes += entry.size_bytes;
  }
  FolderReplacement replacement(folder, new_bytes, foreign_in);
  Unpacker(*archive, replacement.folder(), request).run();
  publish_folder(replacement, request.durable);
}

}  // namespace tenfold::detail::formats::folder
