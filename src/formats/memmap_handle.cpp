#include "formats/memmap_handle.hpp"

#include <cerrno>
#include <utility>

#include <tenfold/error.hpp>

namespace tenfold::memmap_folder {

std::shared_ptr<FolderHandle> FolderHandle::root(os::Directory directory, const os::Path& path) {
  const std::shared_ptr<FolderHandle> handle(new FolderHandle());
  handle->pool_ = std::make_shared<Pool>();
  handle->display_ = directory.display();
  handle->info_ = directory.info();
  handle->pool_->root = std::make_shared<const os::Directory>(std::move(directory));
  handle->pool_->root_info = handle->info_;
  std::error_code none;
  handle->pool_->root_path = std::filesystem::absolute(path, none);
  handle->directory_ = handle->pool_->root;
  return handle;
}

std::shared_ptr<FolderHandle> FolderHandle::try_child(const std::string& name) {
  os::Directory opened = os::Directory::try_open_at(*directory(), name);
  if (!opened.valid()) return nullptr;
  if (depth_ + 1 > kMaxDepth) {
    throw Error(ErrorCode::unsupported, opened.display() +
                                            ": nodes nested too deep: expected at most " +
                                            std::to_string(kMaxDepth) + " levels");
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
  throw Error::io(ESTALE, display_,
                  display_ + ": the folder was replaced since it was opened; open it again");
}

}  // namespace tenfold::memmap_folder
