#include "formats/folder/append/appendable.hpp"

#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "formats/folder/append/commit_file.hpp"
#include "formats/folder/leaf_source.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::folder {

std::shared_ptr<FolderHandle> folder_of(const Leaf& leaf) {
  const auto* source = dynamic_cast<const FolderSource*>(source_of(leaf).get());
  return source == nullptr ? nullptr : std::dynamic_pointer_cast<FolderHandle>(source->folder());
}

std::string file_of(const Leaf& leaf) {
  return dynamic_cast<FolderSource&>(*source_of(leaf)).file_of(leaf);
}

AppendableFolder::AppendableFolder(const Path& path, Mode mode, std::string_view content)
    : path_(os::absolute(path)), mode_(mode), content_(content) {}

void AppendableFolder::require_writable(const char* call) const {
  if (mode_ != Mode::write_through) {
    throw base::unsupported(path_)
        .part(call)
        .expected(content_, " opened with mode \"r+\"")
        .found("one opened to read");
  }
  if (is_closed_) {
    throw base::unsupported(path_).part(call).problem("it was closed").remedy("open it again");
  }
}

void AppendableFolder::require_folder() const {
  if (lock_.folder.valid()) return;
  throw base::unsupported(path_)
      .problem("rows cannot be added in this format")
      .expected("a folder")
      .found("one file")
      .remedy("convert() it to a folder");
}

void AppendableFolder::start(const std::function<std::vector<GrowingLeaf>(bool)>& leaves) {
  require_folder();
  const std::string commit_name(kCommitName);
  const bool had_page = lock_.folder.entry_info(commit_name).has_value();
  CommitFile commit(path_, lock_.folder);
  constexpr std::uint64_t kFirstSequence = 2;
  const bool was_closed =
      !had_page && commit.capacity() == 0 && commit.state().sequence == kFirstSequence;
  try {
    std::vector<GrowingLeaf> found = leaves(was_closed);
    writer_ = std::make_unique<GrowingFolder>(path_, lock_.folder.duplicate(), std::move(commit),
                                              std::move(found));
    writer_->start();
  } catch (...) {
    // Remove the commit page while its lock is held: after the release, another writer may use it.
    try {
      if (was_closed) lock_.folder.remove_file(commit_name);
    } catch (const Error&) {
      // The page may stay: it counts no new rows, and the next writer removes it when it closes the
      // folder.
    }
    writer_ = nullptr;
    throw;
  }
}

void AppendableFolder::flush() {
  if (writer_) writer_->flush();
}

void AppendableFolder::close(const std::function<void()>& reopen) {
  std::optional<Error> moved;
  try {
    if (writer_ && writer_->is_here()) writer_->close();
  } catch (const Error& error) {
    if (error.system_errno() != ESTALE) throw;
    moved = error;
  }
  writer_ = nullptr;
  is_closed_ = true;
  try {
    reopen();
  } catch (...) {
    lock_.release();
    if (!moved) throw;  // if the folder was moved, `reopen` cannot succeed
  }
  lock_.release();
  if (moved) throw Error(*moved);
}

void AppendableFolder::abandon() noexcept {
  std::construct_at(&lock_);
  std::construct_at(&writer_);
  is_closed_ = mode_ == Mode::write_through;
}

}  // namespace tenfold::detail::formats::folder
