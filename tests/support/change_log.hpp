#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "os/fs/change_observer.hpp"

namespace tenfold::test {

/// A Change with its own copy of the bytes.
struct LoggedChange {
  os::Change::Kind kind;
  std::uint64_t inode = 0;
  std::uint64_t created_inode = 0;
  std::string name;
  std::string other;
  std::uint64_t other_directory = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
  std::string bytes;
  /// For sync_*: the number of changes in the log that had returned when the sync was called.
  std::size_t covers = 0;
};

/// Installs itself as the observer, and logs every change that succeeds.
class ChangeLog : public os::ChangeObserver {
 public:
  ChangeLog();
  ~ChangeLog() override;
  ChangeLog(const ChangeLog&) = delete;
  ChangeLog& operator=(const ChangeLog&) = delete;

  void before(const os::Change& change) override;
  void after(const os::Change& change, std::uint64_t inode) override;

  const std::vector<LoggedChange>& changes() const noexcept { return changes_; }

 private:
  std::mutex mutex_;
  std::vector<LoggedChange> changes_;
  os::ChangeObserver* previous_;
};

}  // namespace tenfold::test
