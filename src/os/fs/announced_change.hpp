#pragma once

#include <optional>
#include <string>

#include "os/fs/change_observer.hpp"

namespace tenfold::os {

/// The installed observer, or null. Takes one relaxed load.
ChangeObserver* change_observer() noexcept;

/// The settings of set_exchange_supported() and set_insert_supported().
bool exchange_supported() noexcept;
bool insert_supported() noexcept;

/// Reports that the entry `name` (or a path) is about to be examined or opened.
inline void announce_read(const std::string& name) {
  if (ChangeObserver* const observer = change_observer()) observer->before_read(name);
}

/// Returns a Change of the open file or folder `fd`. `name` and `other`: the members of the Change.
Change change_of(Change::Kind kind, int fd, std::string name = {}, std::string other = {});

/// Reports a Change to the observer, if one is installed: at construction, and again by done().
/// `describe` returns the Change. It is called only if there is an observer, because it calls
/// fstat.
class AnnouncedChange {
 public:
  template <class Describe>
  explicit AnnouncedChange(const Describe& describe) : observer_(change_observer()) {
    if (observer_ == nullptr) return;
    change_.emplace(describe());
    observer_->before(*change_);
  }

  bool observed() const noexcept { return observer_ != nullptr; }

  /// Reports that the change succeeded. `created_inode`: see ChangeObserver::after().
  void done(std::uint64_t created_inode = 0) {
    if (observer_ != nullptr) observer_->after(*change_, created_inode);
  }

 private:
  ChangeObserver* observer_;
  std::optional<Change> change_;
};

}  // namespace tenfold::os
