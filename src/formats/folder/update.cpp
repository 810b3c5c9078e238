#include "formats/folder/update.hpp"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <optional>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "formats/folder/inventory.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/links.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/shared/leaf_writer.hpp"
#include "formats/shared/progress.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/fs/free_space.hpp"

namespace tenfold::detail::formats::folder {
namespace {

/// Number of files open at once.
constexpr std::size_t kOpenFiles = 64;

[[noreturn]] void refuse_symlink(const std::string& display) {
  throw Error::io(ELOOP, display)
      .problem("refusing to write through symlink")
      .expected("a file or folder of the tree")
      .found("a link")
      .remedy("remove it first");
}

void refuse_other(const os::FileInfo& found, bool want_directory, const std::string& display) {
  const bool fits = want_directory ? found.is_directory : found.is_regular;
  if (fits) return;
  if (!found.is_directory && !found.is_regular) refuse_symlink(display);
  throw Error::io(want_directory ? ENOTDIR : EISDIR, display)
      .expected(want_directory ? "a folder or nothing" : "a file or nothing")
      .found(want_directory ? "a file" : "a folder")
      .remedy("remove it first");
}

/// The planned folders, created if missing, and opened on demand.
class Folders {
 public:
  Folders(const Plan& plan, const Path& path) : plan_(plan) {
    os::Parent parent = os::open_parent(os::resolve_link(path), true);
    root_ = enter(parent.directory, parent.name);
    for (std::size_t i = 1; i < plan.folders.size(); ++i) {
      os::Directory above = at(plan.folders[i].parent);
      enter(above, plan.folders[i].name);
    }
  }

  const os::Directory& root() const noexcept { return root_; }

  os::Directory at(std::size_t folder) const {
    if (folder == 0) return root_.duplicate();
    return os::Directory::open_at(at(plan_.folders[folder].parent), plan_.folders[folder].name);
  }

 private:
  static os::Directory enter(os::Directory& parent, const std::string& name) {
    if (const auto found = parent.entry_info(name)) {
      refuse_other(*found, true, parent.display_of(name));
    } else {
      parent.create_directory(name);
    }
    return os::Directory::open_at(parent, name);
  }

  const Plan& plan_;
  os::Directory root_;
};

/// A file being written: in place, or as a temporary file that replaces it.
class Target {
 public:
  Target(const os::Directory& folder, const std::string& name, bool in_place) {
    const auto found = folder.entry_info(name);
    if (found) refuse_other(*found, false, folder.display_of(name));
    if (!in_place) {
      replacement_.emplace(Path(folder.display_of(name)), 0);
    } else if (found) {
      file_ = os::File::open_read_write_at(folder, name);
    } else {
      file_ = os::File::create_at(folder, name);
    }
  }

  os::File& file() { return replacement_ ? replacement_->file() : file_; }

  void finish(bool durable) {
    if (replacement_) {
      replacement_->publish(durable);
    } else {
      if (durable) file_.sync();
      file_.close_written();
    }
  }

 private:
  std::optional<FileReplacement> replacement_;
  os::File file_;
};

/// FileReplacement is not movable.
using Targets = std::deque<Target>;

class Updater {
 public:
  Updater(const Plan& plan, const Path& path, const UpdateRequest& request)
      : plan_(plan),
        request_(request),
        folders_(plan, path),
        progress_(request.monitor, plan.leaf_bytes, "memmap") {
    if (request.in_place) {
      refuse_shared_files(folders_.root());
    } else {
      before_ = take_inventory(folders_.root());
    }
  }

  void run() {
    std::vector<std::size_t> leaves;
    std::vector<std::size_t> texts;
    for (std::size_t i = 0; i < plan_.files.size(); ++i) {
      const Plan::File& file = plan_.files[i];
      if (!file.is_leaf) {
        texts.push_back(i);
      } else if (!request_.is_kept || !request_.is_kept(file, plan_.path_of(file))) {
        leaves.push_back(i);
      }
    }
    for (std::size_t i = 0; i < leaves.size(); i += kOpenFiles) {
      write(std::span(leaves).subspan(i, std::min(kOpenFiles, leaves.size() - i)));
    }
    // A parent's metadata names its children, so write the metadata of children first.
    std::stable_sort(texts.begin(), texts.end(), [&](std::size_t a, std::size_t b) {
      return depth_of(plan_.files[a].folder) > depth_of(plan_.files[b].folder);
    });
    for (const std::size_t number : texts) write_text(plan_.files[number]);
    drop_stale();
    progress_.finish();
  }

 private:
  std::size_t depth_of(std::size_t folder) const {
    std::size_t depth = 0;
    for (; folder != 0; folder = plan_.folders[folder].parent) ++depth;
    return depth;
  }

  /// Throws unless there is space for the new files, in addition to the old ones.
  void require_free_space(std::span<const std::size_t> numbers) const {
    if (request_.in_place || request_.zeros) return;
    std::uint64_t new_bytes = 0;
    for (const std::size_t number : numbers) new_bytes += plan_.files[number].size_bytes;
    const os::Directory& root = folders_.root();
    os::require_free_space(root.fd(), root.display(), new_bytes);
  }

  void write(std::span<const std::size_t> numbers) {
    require_free_space(numbers);
    Targets targets;
    std::vector<LeafWrite> writes;
    for (const std::size_t number : numbers) {
      const Plan::File& file = plan_.files[number];
      targets.emplace_back(folders_.at(file.folder), file.name, request_.in_place);
      os::File& out = targets.back().file();
      if (request_.zeros && !file.is_sizes) {
        if (out.size_bytes() < file.size_bytes) out.truncate(file.size_bytes);
        continue;
      }
      LeafWrite write;
      write.leaf = &file.leaf;
      write.file = &out;
      write.size_bytes = file.size_bytes;
      writes.push_back(std::move(write));
    }
    write_leaves(writes, BlockChecksum::none, request_.num_threads, progress_, request_.durable);
    for (Target& target : targets) target.finish(request_.durable);
  }

  void write_text(const Plan::File& file) {
    const os::Directory folder = folders_.at(file.folder);
    if (const auto found = folder.entry_info(file.name)) {
      refuse_other(*found, false, folder.display_of(file.name));
      if (found->size_bytes == file.text.size()) {
        const os::File old = os::File::open_read_at(folder, file.name);
        if (old.read_all(file.text.size() + 1) == file.text) return;
      }
    }
    // Metadata is always replaced atomically, even if tensors are written in place.
    Target target(folder, file.name, false);
    target.file().write_at(0, std::as_bytes(std::span(file.text)));
    target.finish(request_.durable);
  }

  /// Removes files that only the old metadata names, stale checksums, and notes that are no longer
  /// needed.
  void drop_stale() {
    std::unordered_set<std::string> planned;
    for (const Plan::File& file : plan_.files) planned.insert(plan_.path_of(file));
    os::Directory root = folders_.at(0);
    for (const std::string_view own : {kChecksumsName, kNotesName}) {
      const std::string name(own);
      if (!planned.contains(name) && root.entry_info(name)) root.remove_file(name);
    }
    for (std::size_t i = 1; i < plan_.folders.size(); ++i) planned.insert(path_of_folder(i));
    for (const auto* paths : {&before_.folders, &before_.files}) {
      for (const std::string& path : *paths) {
        // Temporary files of other processes are protected by their leases.
        const bool is_left = is_leftover(path.substr(path.rfind('/') + 1));
        if (!is_left && !planned.contains(path)) remove(root, path);
      }
    }
  }

  std::string path_of_folder(std::size_t folder) const {
    std::string path = plan_.folders[folder].name;
    for (std::size_t i = plan_.folders[folder].parent; i != 0; i = plan_.folders[i].parent) {
      path.insert(0, plan_.folders[i].name + "/");
    }
    return path;
  }

  static void remove(const os::Directory& root, const std::string& path) {
    os::Directory folder = root.duplicate();
    std::size_t begin = 0;
    for (std::size_t slash = path.find('/'); slash != std::string::npos;
         begin = slash + 1, slash = path.find('/', begin)) {
      folder = os::Directory::try_open_at(folder, path.substr(begin, slash - begin));
      if (!folder.valid()) return;  // removed together with its folder
    }
    folder.remove_tree(path.substr(begin));
  }

  const Plan& plan_;
  const UpdateRequest& request_;
  Folders folders_;
  Progress progress_;
  Inventory before_;
};

}  // namespace

void update_folder(const Plan& plan, const Path& path, const UpdateRequest& request) {
  Updater(plan, path, request).run();
}

std::string first_existing_leaf(const Plan& plan, const Path& path) {
  for (const Plan::File& file : plan.files) {
    const Path candidate = path / plan.path_of(file);
    if (file.is_leaf && os::exists(candidate)) return candidate.string();
  }
  return {};
}

}  // namespace tenfold::detail::formats::folder
