#include "formats/folder/handle.hpp"

#include <cerrno>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "formats/shared/progress.hpp"
#include "os/memory/mapping.hpp"

namespace tenfold::detail::formats::folder {
namespace {

StoredInfo stored_info(const os::FileInfo& info) noexcept {
  return {.device = info.device,
          .inode = info.inode,
          .num_links = info.num_links,
          .size_bytes = info.size_bytes};
}

class DiskFile final : public StoredFile {
 public:
  explicit DiskFile(os::File file)
      : file_(std::move(file)), info_(stored_info(file_.info_at_open())) {}

  const std::string& display() const noexcept override { return file_.display(); }
  const StoredInfo& info() const noexcept override { return info_; }
  std::uint64_t size_bytes_now() const override { return file_.size_bytes(); }
  std::size_t read_some_at(std::uint64_t offset_bytes, std::span<std::byte> into) const override {
    return file_.read_some_at(offset_bytes, into);
  }
  void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const override {
    file_.read_at(offset_bytes, into);
  }

  Buffer map(std::uint64_t size_bytes, Mode mode, Arena& arena) const override {
    if (mode == Mode::write_through) {
      return os::map_file(file_, 0, size_bytes, os::MapKind::shared_write, info_.size_bytes);
    }
    if (!arena.takes(size_bytes)) {
      return os::map_file(file_, 0, size_bytes, os::MapKind::private_copy, info_.size_bytes);
    }
    Buffer piece = arena.allocate(static_cast<std::size_t>(size_bytes));
    file_.read_at(0, piece.mutable_bytes());
    return piece;
  }

 private:
  os::File file_;
  StoredInfo info_;
};

}  // namespace

std::shared_ptr<FolderHandle> FolderHandle::root(os::Directory directory, const os::Path& path,
                                                 std::vector<os::Directory> locks) {
  const std::shared_ptr<FolderHandle> handle(new FolderHandle());
  handle->pool_ = std::make_shared<Pool>();
  handle->pool_->locks = std::move(locks);
  handle->display_ = directory.display();
  handle->info_ = directory.info();
  handle->pool_->root = std::make_shared<const os::Directory>(std::move(directory));
  handle->pool_->root_info = handle->info_;
  std::error_code none;
  handle->pool_->root_path = std::filesystem::absolute(path, none);
  handle->directory_ = handle->pool_->root;
  return handle;
}

std::string FolderHandle::path_below_root() const {
  if (!parent_) return "";
  const std::string above = parent_->path_below_root();
  return above.empty() ? name_ : above + "/" + name_;
}

std::shared_ptr<Folder> FolderHandle::try_child(const std::string& name) {
  os::Directory opened = os::Directory::try_open_at(*directory(), name);
  if (!opened.valid()) return nullptr;
  if (depth_ + 1 > kMaxDepth) {
    throw base::unsupported(opened.display())
        .problem("nodes nested too deep")
        .expected("at most ", kMaxDepth, " levels");
  }
  const std::shared_ptr<FolderHandle> child(new FolderHandle());
  child->pool_ = pool_;
  child->parent_ = shared_from_this();
  child->name_ = name;
  child->display_ = opened.display();
  child->depth_ = depth_ + 1;
  child->info_ = opened.info();
  child->remember(std::make_shared<const os::Directory>(std::move(opened)));
  return child;
}

bool FolderHandle::has_child(const std::string& name) {
  const auto found = directory()->entry_info(name);
  return found && found->is_directory;
}

std::unique_ptr<StoredFile> FolderHandle::try_open(const std::string& name, bool for_writing) {
  const auto folder = directory();
  if (!for_writing) {
    os::File file = os::File::try_open_read_at(*folder, name);
    return file.valid() ? std::make_unique<DiskFile>(std::move(file)) : nullptr;
  }
  try {
    return std::make_unique<DiskFile>(os::File::open_read_write_at(*folder, name));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::file_not_found) throw;
    return nullptr;
  }
}

std::optional<StoredInfo> FolderHandle::file_info(const std::string& name) {
  const auto found = directory()->entry_info(name);
  if (!found) return std::nullopt;
  return stored_info(*found);
}

std::optional<std::string> FolderHandle::read_text(const std::string& name,
                                                   std::uint64_t limit_bytes) {
  const os::File file = os::File::try_open_read_at(*directory(), name);
  if (!file.valid()) return std::nullopt;
  return file.read_all(limit_bytes);
}

void FolderHandle::flush(const std::vector<MappedPart>& mapped, Monitor* monitor) {
  std::uint64_t total_bytes = 0;
  for (const MappedPart& part : mapped) total_bytes += part.bytes.size_bytes();
  Progress progress(monitor, total_bytes, "flush");
  for (const MappedPart& part : mapped) {
    os::sync_mapping(part.bytes, part.display);
    progress.add(part.bytes.size_bytes());
    progress.poll();
  }
  progress.finish();
}

void FolderHandle::remember(std::shared_ptr<const os::Directory> directory) {
  directory_ = directory;
  const std::lock_guard lock(pool_->mutex);
  if (pool_->open.size() < kMaxOpen) {
    pool_->open.push_back(std::move(directory));
    return;
  }
  pool_->open[pool_->next] = std::move(directory);
  pool_->next = (pool_->next + 1) % kMaxOpen;
}

std::shared_ptr<const os::Directory> FolderHandle::directory() {
  const std::lock_guard lock(mutex_);
  if (auto open = directory_.lock()) return open;
  const auto parent = parent_->directory();
  os::Directory again = os::Directory::try_open_at(*parent, name_);
  if (!again.valid() || !again.info().same_file(info_)) throw_replaced();
  auto shared = std::make_shared<const os::Directory>(std::move(again));
  remember(shared);
  return shared;
}

bool FolderHandle::was_replaced() {
  if (pool_->root->info().num_links == 0 || directory()->info().num_links == 0) return true;
  try {
    return !os::file_info(pool_->root_path).same_file(pool_->root_info);
  } catch (const Error& error) {
    return error.code() == ErrorCode::file_not_found;
  }
}

void FolderHandle::throw_replaced() const {
  throw Error::io(ESTALE, display_)
      .problem("the folder was replaced since it was opened")
      .remedy("open it again");
}

}  // namespace tenfold::detail::formats::folder
