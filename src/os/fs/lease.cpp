#include "os/fs/lease.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/hash/checksum.hpp"
#include "os/process_wide.hpp"
#include "os/system.hpp"
#include "os/thread/no_signals.hpp"

namespace tenfold::os {
namespace {

/// Upper bound of the size of a lease's text: the boot ID has 32 characters, a host name at most
/// 64, and each number at most 20.
constexpr std::uint64_t kMaxTextBytes = 512;
constexpr std::string_view kMagic = "tenfold-lease-1";

std::atomic<std::chrono::seconds> lease_timeout{std::chrono::minutes(10)};
std::atomic<std::chrono::milliseconds> lease_heartbeat{std::chrono::seconds(30)};
std::atomic<bool> symlinks_are_supported{true};

std::string boot_text() {
  const auto halves = std::bit_cast<std::array<std::uint64_t, 2>>(boot_id());
  return base::hex16(halves[0]) + base::hex16(halves[1]);
}

/// PID namespace of this process; 0 without /proc.
std::uint64_t process_namespace() {
  struct stat status{};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

struct ProcessState {
  bool has_ended = false;  ///< also true for a zombie, which its parent has not reaped yet
  std::uint64_t start_ticks = 0;
};

/// Parses /proc/<process>/stat; nullopt if it cannot be read.
std::optional<ProcessState> process_state(std::uint64_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  // The second field, the name of the program in parentheses, may contain any character.
  const std::size_t after_name = text.rfind(')');
  if (after_name == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(after_name + 1));
  const std::vector<std::string> fields(std::istream_iterator<std::string>(rest), {});
  // proc(5) counts fields from 1; `fields` starts at the third, the state.
  constexpr std::size_t kState = 0;
  constexpr std::size_t kNumThreads = 20 - 3;
  constexpr std::size_t kStartTime = 22 - 3;
  if (fields.size() <= kStartTime) return std::nullopt;
  ProcessState state;
  state.start_ticks = std::strtoull(fields[kStartTime].c_str(), nullptr, 10);
  // A main thread that ends before the other threads is a zombie, too, but its process is alive.
  const bool is_zombie = fields[kState] == "Z" && fields[kNumThreads] <= "1";
  state.has_ended = fields[kState] == "X" || is_zombie;
  return state;
}

bool is_process_alive(std::uint64_t process, std::uint64_t start_ticks) {
  if (process == 0 || process > INT_MAX) return false;
  if (::kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH) return false;
  const auto state = process_state(process);
  // 0 means that the holder could not read its own start time.
  const bool is_same = !state || start_ticks == 0 || state->start_ticks == start_ticks;
  return is_same && !(state && state->has_ended);
}

/// The text of the link or small file `name`, which need not be a lease. Returns "?" for a larger
/// file and for an entry of another kind, and nullopt if there is no entry.
std::optional<std::string> read_lease(const Directory& folder, const std::string& name) {
  if (auto text = folder.read_link(name)) return text;
  const auto info = folder.entry_info(name);
  if (!info) return std::nullopt;
  if (!info->is_regular || info->size_bytes > kMaxTextBytes) return "?";
  const File file = File::try_open_read_at(folder, name);
  if (!file.valid()) return std::nullopt;
  return file.read_all(kMaxTextBytes);
}

/// State shared by all leases of this process: its identity, and the held leases, whose
/// modification times a thread refreshes.
class Holder {
 public:
  Holder() : namespace_(process_namespace()), process_(process_id()), host_(host_name()) {
    if (const auto state = process_state(process_)) start_ticks_ = state->start_ticks;
  }

  std::string new_text() const {
    return std::string(kMagic) + " " + boot_text() + " " + std::to_string(namespace_) + " " +
           std::to_string(process_) + " " + std::to_string(start_ticks_) + " " +
           base::hex16(random_number()) + " " + host_;
  }

  void add(const std::string& text, const std::shared_ptr<Directory>& folder,
           const std::string& name) {
    const std::lock_guard lock(mutex_);
    held_[text] = {folder, name};
    if (!has_thread_) start_thread();
  }
  void remove(const std::string& text) {
    const std::lock_guard lock(mutex_);
    held_.erase(text);
  }

  /// True if the process that `text` identifies is alive and, if it is this process, holds the
  /// lease `text`. Returns nullopt if unknown: `text` is from another host, boot or PID namespace,
  /// or is incomplete.
  std::optional<bool> lives(const std::string& text) {
    std::istringstream fields(text);
    std::string magic;
    std::string boot;
    std::uint64_t pid_namespace = 0;
    std::uint64_t process = 0;
    std::uint64_t start_ticks = 0;
    fields >> magic >> boot >> pid_namespace >> process >> start_ticks;
    if (!fields || magic != kMagic || boot_id() == BootId{} || boot != boot_text() ||
        pid_namespace == 0 || pid_namespace != namespace_) {
      return std::nullopt;
    }
    if (process != process_ || start_ticks != start_ticks_) {
      return is_process_alive(process, start_ticks);
    }
    const std::lock_guard lock(mutex_);
    return held_.contains(text);
  }

 private:
  struct Name {
    std::shared_ptr<const Directory> folder;
    std::string name;
  };

  /// Starts the thread that refreshes leases. The caller must have locked the mutex.
  void start_thread() {
    const NoSignals no_signals;
    try {
      std::thread([this] {
        pthread_setname_np(pthread_self(), "tenfold-lease");
        keep_alive();
      }).detach();
      has_thread_ = true;
    } catch (const std::system_error&) {
      // Without the thread, a lease is valid for other hosts and process ID namespaces until its
      // time-out, and for other processes until this process ends.
    }
  }

  /// The loop of the thread that refreshes leases. Returns when this process holds no lease.
  void keep_alive() {
    for (;;) {
      std::this_thread::sleep_for(lease_heartbeat.load(std::memory_order_relaxed));
      try {
        std::map<std::string, Name> held;
        {
          const std::lock_guard lock(mutex_);
          if (held_.empty()) {
            has_thread_ = false;
            return;
          }
          held = held_;
        }
        // The mutex is not locked here, because a file server that does not respond must not block
        // saves on other file systems.
        for (const auto& [text, of] : held) refresh(of, text);
      } catch (const std::exception&) {
        // Out of memory: the next heartbeat tries again.
      }
    }
  }

  static void refresh(const Name& of, const std::string& text) {
    try {
      // If this process was stopped for longer than the time-out, the lease may belong to another
      // process, and must expire if that process ends.
      if (read_lease(*of.folder, of.name) != text) return;
      ::utimensat(of.folder->fd(), of.name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
    } catch (const Error&) {
      // The file system reports an error: the next heartbeat tries again.
    }
  }

  std::uint64_t namespace_;
  std::uint64_t process_;
  std::uint64_t start_ticks_ = 0;
  std::string host_;
  std::mutex mutex_;
  std::map<std::string, Name> held_;  ///< keyed by lease text
  bool has_thread_ = false;
};

Holder& holder() { return ProcessWide<Holder>::get(); }

bool create_lease(Directory& folder, const std::string& name, const std::string& text) {
  try {
    if (symlinks_are_supported.load(std::memory_order_relaxed)) {
      return folder.create_symlink(text, name);
    }
  } catch (const Error& error) {
    const int code = error.system_errno();
    if (code != EPERM && code != EOPNOTSUPP && code != ENOSYS) throw;
  }
  try {
    File file = File::create_at(folder, name);
    try {
      file.write_at(0, std::as_bytes(std::span(text)));
      file.close_written();
    } catch (...) {
      folder.remove_file(name);
      throw;
    }
  } catch (const Error& error) {
    if (error.system_errno() != EEXIST) throw;
    return false;
  }
  return true;
}

std::int64_t local_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// The time that the file system gives to a new entry, because a server's clock may differ from
/// that of this host. The time of this host if no entry can be created.
std::int64_t file_system_now_ns(Directory& folder, const std::string& name) {
  const std::string probe = name + "~clock";
  try {
    static_cast<void>(create_lease(folder, probe, std::string(kMagic)));
    const auto info = folder.entry_info(probe);
    folder.remove_tree(probe);
    if (info) return info->modified_ns;
  } catch (const Error&) {
    // A reader may lack the permission to create an entry.
  }
  return local_now_ns();
}

/// True if the lease `text`, which was read from the entry `name`, is dead. If lives() cannot tell
/// (nullopt), a lease is dead if the modification time of the entry is older than the time-out,
/// both by the clock of this host and by that of the file system. False if `text` is not a lease,
/// or if the modification time is needed and the entry no longer exists.
bool is_dead(Directory& folder, const std::string& name, const std::string& text) {
  // A lease begins with kMagic, or is the beginning of kMagic if a writer crashed while it wrote
  // the file. Any other content is not a lease.
  if (!text.starts_with(kMagic) && !kMagic.starts_with(text)) return false;
  if (const auto lives = holder().lives(text)) return !*lives;
  const auto info = folder.entry_info(name);
  if (!info) return false;
  const std::int64_t timeout_ns =
      std::chrono::nanoseconds(lease_timeout.load(std::memory_order_relaxed)).count();
  // Do not subtract the times: an entry may have a time before 1700, so the result could overflow.
  if (info->modified_ns > local_now_ns() - timeout_ns) return false;
  return info->modified_ns <= file_system_now_ns(folder, name) - timeout_ns;
}

std::string aside_name(const std::string& name) { return name + "~"; }

/// Removes leftovers of a process that crashed while it took over a dead lease.
void remove_abandoned(Directory& folder, const std::string& name) {
  const std::string aside = aside_name(name);
  const auto found = read_lease(folder, aside);
  if (found && is_dead(folder, aside, *found)) folder.remove_tree(aside);
}

/// Removes a dead lease. `name~` is its lock: only the process that created `name~` may remove the
/// lease, and first checks it again, because another process may have created a new lease under the
/// same name since this lease was found dead.
void remove_dead(const std::shared_ptr<Directory>& folder, const std::string& name,
                 const std::string& text) {
  const std::string aside = aside_name(name);
  const std::string own = holder().new_text();
  holder().add(own, folder, aside);
  try {
    if (create_lease(*folder, aside, own)) {
      const auto now = read_lease(*folder, name);
      // A partial text does not identify a process: the entry may be a new lease with the same
      // partial text.
      if (now && *now == text && is_dead(*folder, name, text)) folder->remove_tree(name);
      folder->remove_tree(aside);
    } else {
      remove_abandoned(*folder, name);
    }
  } catch (...) {
    try {
      // Remove `name~`. Otherwise, other processes could not remove the dead lease until this
      // process ends or the time-out passes.
      if (read_lease(*folder, aside) == own) folder->remove_tree(aside);
    } catch (const Error&) {
      // The entry is dead when this process ends.
    }
    holder().remove(own);
    throw;
  }
  holder().remove(own);
}

}  // namespace

std::optional<Lease> Lease::try_acquire(const Directory& folder, const std::string& name) {
  const auto same = std::make_shared<Directory>(folder.duplicate());
  const std::string text = holder().new_text();
  // Tries again after removing a dead lease, and if another process released or took over the
  // lease concurrently.
  constexpr int kMaxAttempts = 5;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    // Register the lease before the link exists, so that this process never considers its own lease
    // dead.
    holder().add(text, same, name);
    try {
      if (create_lease(*same, name, text)) {
        Lease lease(same, name, text);
        try {
          remove_abandoned(*same, name);
        } catch (const Error&) {
          // For example, `name~` belongs to another user. The new lease is valid anyway.
        }
        return lease;
      }
    } catch (...) {
      holder().remove(text);
      throw;
    }
    holder().remove(text);
    const auto found = read_lease(*same, name);
    if (!found) continue;
    if (!is_dead(*same, name, *found)) {
      if (!same->entry_info(name)) continue;  // released after read_lease() had read it
      return std::nullopt;
    }
    try {
      remove_dead(same, name, *found);
    } catch (const Error& error) {
      // This process may not remove the lease: for example, it belongs to another user, and the
      // folder has the sticky bit.
      if (error.system_errno() != EACCES && error.system_errno() != EPERM) throw;
      return std::nullopt;
    }
  }
  return std::nullopt;
}

Lease::Lease(std::shared_ptr<Directory> folder, std::string name, std::string text)
    : folder_(std::move(folder)), name_(std::move(name)), text_(std::move(text)) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    release();
    folder_ = std::move(other.folder_);
    name_ = std::move(other.name_);
    text_ = std::move(other.text_);
    process_ = other.process_;
  }
  return *this;
}

bool Lease::is_held() const {
  return folder_ && process_.is_here() && read_lease(*folder_, name_) == text_;
}

void Lease::release() noexcept {
  const std::shared_ptr<Directory> folder = std::exchange(folder_, nullptr);
  if (!folder || !process_.is_here()) return;
  try {
    if (read_lease(*folder, name_) == text_) folder->remove_file(name_);
  } catch (...) {
    // The link remains. To other processes it is held until this one ends or the time-out passes.
  }
  try {
    holder().remove(text_);
  } catch (...) {
    // The mutex cannot be locked. The link is usually removed; only its entry in held_ remains.
  }
}

bool is_leased(const Directory& folder, const std::string& name) {
  Directory same = folder.duplicate();
  const auto found = read_lease(same, name);
  return found && !is_dead(same, name, *found) && same.entry_info(name).has_value();
}

std::string lease_holder(const Directory& folder, const std::string& name) {
  Directory same = folder.duplicate();
  const auto found = read_lease(same, name);
  if (!found) return {};
  std::istringstream fields(*found);
  std::string magic;
  std::string boot;
  std::string pid_namespace;
  std::string process;
  std::string start_ticks;
  std::string number;
  std::string host;
  fields >> magic >> boot >> pid_namespace >> process >> start_ticks >> number >> host;
  // Messages contain process and host: a hostile link must not send control characters to a
  // terminal.
  const auto is_plain = [](char c) { return c > ' ' && c < 0x7F; };
  if (!fields || magic != kMagic || !std::ranges::all_of(process + host, is_plain)) return {};
  return "process " + process + " on " + host;
}

namespace {

std::string lock_name(const std::string& name) { return "." + name + ".tenfold-lock"; }

}  // namespace

std::optional<WriterLock> WriterLock::try_acquire(const Directory& folder, const std::string& name,
                                                  File& file) {
  WriterLock lock;
  const LockResult result = file.try_lock_exclusive();
  if (result == LockResult::held) return std::nullopt;
  if (result == LockResult::acquired) return lock;
  lock.lease_ = Lease::try_acquire(folder, lock_name(name));
  if (!lock.lease_) return std::nullopt;
  return lock;
}

std::optional<WriterLock> WriterLock::try_acquire_current(const Directory& folder,
                                                          const std::string& name, File& file) {
  auto lock = try_acquire(folder, name, file);
  const auto now = folder.entry_info(name);
  if (!now || !now->same_file(file.info())) return std::nullopt;
  return lock;
}

bool WriterLock::is_held() const { return !lease_ || lease_->is_held(); }

bool WriterLock::is_locked(const Directory& folder, const std::string& name, File& file) {
  const LockResult result = file.try_lock_shared();
  if (result == LockResult::acquired) file.unlock();
  if (result != LockResult::unsupported) return result == LockResult::held;
  return is_leased(folder, lock_name(name));
}

std::optional<std::uint64_t> lock_holder(const FileInfo& file) {
  std::ostringstream place;
  place << std::hex << std::setfill('0') << std::setw(2) << major(file.device) << ':'
        << std::setw(2) << minor(file.device) << ':' << std::dec << file.inode;
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    // "1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF"; a waiting lock is "1: -> FLOCK ..."
    std::istringstream fields(line);
    std::string number;
    std::string type;
    std::string how;
    std::string access;
    std::int64_t process = 0;
    std::string where;
    fields >> number >> type >> how >> access >> process >> where;
    if (fields && type == "FLOCK" && where == place.str() && process > 0) {
      return static_cast<std::uint64_t>(process);
    }
  }
  return std::nullopt;
}

std::string held_by(const FileInfo& file) {
  const auto process = lock_holder(file);
  return process ? " by process " + std::to_string(*process) : std::string();
}

std::chrono::seconds set_lease_timeout(std::chrono::seconds timeout) {
  return lease_timeout.exchange(timeout);
}

std::chrono::milliseconds set_lease_heartbeat(std::chrono::milliseconds interval) {
  return lease_heartbeat.exchange(interval);
}

bool set_symlinks_supported(bool supported) noexcept {
  return symlinks_are_supported.exchange(supported);
}

}  // namespace tenfold::os
