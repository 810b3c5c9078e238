#include "support/change_log.hpp"

namespace tenfold::test {
namespace {

thread_local std::size_t returned_before_sync = 0;

}  // namespace

ChangeLog::ChangeLog() : previous_(os::set_change_observer(this)) {}
ChangeLog::~ChangeLog() { os::set_change_observer(previous_); }

void ChangeLog::before(const os::Change&) {
  const std::lock_guard lock(mutex_);
  returned_before_sync = changes_.size();
}

void ChangeLog::after(const os::Change& change, std::uint64_t inode) {
  LoggedChange logged;
  logged.kind = change.kind;
  logged.inode = change.inode;
  logged.created_inode = inode;
  logged.name = change.name;
  logged.other = change.other;
  logged.other_directory = change.other_directory;
  logged.offset_bytes = change.offset_bytes;
  logged.size_bytes = change.size_bytes;
  logged.bytes.assign(reinterpret_cast<const char*>(change.bytes.data()), change.bytes.size());
  logged.covers = returned_before_sync;
  const std::lock_guard lock(mutex_);
  changes_.push_back(std::move(logged));
}

}  // namespace tenfold::test
