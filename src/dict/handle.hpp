#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tenfold/mapped_dict.hpp>

#include "base/access.hpp"
#include "dict/paging.hpp"
#include "dict/state.hpp"
#include "os/fs/directory.hpp"
#include "os/process.hpp"
#include "os/thread/fork_safe_lock.hpp"

namespace tenfold {

/// Writes a dictionary while other threads and processes read it.
///
/// The rows are authoritative, and the index is only used to find them: among committed rows with
/// the same key, the last one has the key's value. The slot of a new key is inserted before its row
/// is committed, and readers ignore uncommitted rows. The slot of an assigned key is changed after
/// the new row is committed. So after a crash of the writer, each key has its old or its new value.
/// The next writer finds the dirty flag in the header of the index, and rebuilds the index from the
/// rows.
///
/// Thread safety: one thread at a time.
class DictWriter {
 public:
  /// Locks the dictionary against other writers, as Dataset::append() does. Rebuilds the index if
  /// the last writer was not closed, or if rows were added to the data set without updating the
  /// index. `dataset` must be opened with Mode::write_through.
  DictWriter(Path path, Dataset dataset);
  DictWriter(const DictWriter&) = delete;
  DictWriter& operator=(const DictWriter&) = delete;

  /// The current rows of keys, -1 for missing keys.
  std::vector<std::int64_t> find(const DictKeys& keys);
  /// Adds a row for each key; `old_rows` is the result of find(keys).
  void write(const DictKeys& keys, std::span<const std::int64_t> old_rows, const Batch& values);
  /// Makes the index and the rows durable.
  void flush();
  /// If the dirty flag is set (by write(), or because the constructor rebuilt the index), calls
  /// flush(), clears the flag and stores the checksums of the index. Then releases the lock.
  void close();
  /// The process that created this object. Its forked children must not write, because they share
  /// the mapping of the index with it.
  const os::OwnProcess& process() const noexcept { return process_; }
  /// True if write() failed after it had replaced, or may have replaced, the file of the index.
  /// This object still maps the old file then, so create another writer, which rebuilds the index.
  bool has_old_index() const noexcept { return has_old_index_; }
  /// Moves the index (mapped read-write) out of this object. Destroy this object afterwards.
  std::unique_ptr<DictIndex> take_index() noexcept { return std::move(index_); }

 private:
  struct Change;

  const DictState& state();
  void open_index();
  void sync_index() const;
  void begin();
  void drop_checksums();
  void add_checksums();
  void rebuild(double load, std::uint64_t room);
  bool insert(const Change& change);
  void rollback(const Change& change, std::size_t count);
  void set_dead(std::uint64_t num_dead, std::uint64_t num_rows);
  Batch with_keys(const DictKeys& keys, const Batch& values) const;
  Path values_folder() const;

  Path path_;
  Dataset dataset_;
  os::Directory root_;
  os::OwnProcess process_;
  std::shared_ptr<const DictState>
      state_;  ///< may be older than the last rows added by this writer
  bool is_behind_ = true;
  std::uint64_t num_rows_ = 0;
  std::uint64_t num_dead_ = 0;
  std::unique_ptr<DictIndex> index_;  ///< mapped read-write
  std::string index_file_;
  bool is_begun_ = false;  ///< the dirty flag is set in the header of the index
  bool has_old_index_ = false;
};

/// Rows of keys, and the state to which these rows belong.
struct FoundRows {
  std::shared_ptr<const DictState> state;
  std::vector<std::int64_t> rows;
};

struct FoundValues {
  FoundRows found;
  Batch values;  ///< zeros or empty values where a row is -1
};

/// The row of a key (-1 if it is missing), and the state to which the row belongs.
struct FoundRow {
  std::shared_ptr<const DictState> state;
  std::int64_t row = -1;
};

namespace detail {

/// The object that all copies of a MappedDict share: the opened dictionary and its current rows.
/// refresh(), flush() and close() implement the functions of MappedDict with the same names.
///
/// Thread safety: all members may be called from any thread. If the process forks while another
/// thread calls a member, the child process opens the dictionary again, read-only. A handle that
/// was created from a TensorDict has no path to open, and keeps its state.
class DictHandle {
 public:
  DictHandle(const Path& path, Mode mode);
  explicit DictHandle(TensorDict tree);
  DictHandle(const DictHandle&) = delete;
  DictHandle& operator=(const DictHandle&) = delete;
  ~DictHandle();

  /// A state that includes everything that this handle has written.
  std::shared_ptr<const DictState> state();
  /// A state that also includes the rows that other handles have committed.
  std::shared_ptr<const DictState> newest();
  Dataset dataset() const;
  const Schema& value_schema() const noexcept { return value_schema_; }
  DictKeyType key_type() const noexcept { return key_type_; }
  DictValueForm value_form() const noexcept { return value_form_; }
  /// Looks up a key. Uses a newer state if the key's slot points to a row that was committed after
  /// the current state, or if the index was replaced.
  template <class Key>
  FoundRow find(const Key& key);
  /// Looks up many keys. Pages that are not cached are read concurrently.
  FoundRows find_many(const DictKeys& keys);
  FoundValues get_many(const DictKeys& keys);
  void refresh();

  /// The keys that write() accepts.
  enum class Write : std::uint8_t {
    assign,  ///< only existing keys; of duplicates, the last one wins
    extend,  ///< only new keys, without duplicates
    put,     ///< any keys; of duplicates, the last one wins
  };
  /// Implements MappedDict::assign() and extend(), and throws their errors.
  void write(const DictKeys& keys, const Batch& values, Write kind);
  /// Acquires the writer lock before the first write(), which would otherwise acquire it.
  void begin_writing();
  void flush();
  void close();
  /// Calls `replace(source)`, which must write a new dictionary with the content of `source` to the
  /// path, and must throw if rows were added after `source` was read. Before the call, repairs the
  /// index if necessary, releases the writer lock and opens the folder read-only. After the call,
  /// opens the folder again with the original mode; if that fails, the handle stays closed.
  void replace(const std::function<void(const std::shared_ptr<const DictState>& source)>& replace);

 private:
  using Lock = std::lock_guard<os::RenewingMutex>;

  /// Looks up the rows of keys with `find`. Uses a newer state if slots point to rows that were
  /// committed after the current state, or if the index was replaced. Returns the state to which
  /// `rows` belongs.
  template <class Find>
  std::shared_ptr<const DictState> find_in_newest(const DictKeys& keys,
                                                  std::span<std::int64_t> rows, const Find& find);
  std::shared_ptr<const DictState> newer_with(std::shared_ptr<const DictState> state,
                                              const DictLookup& lookup);
  /// The state that was opened last. Newer rows may exist: a lookup detects a newer row when a slot
  /// points to it.
  std::shared_ptr<const DictState> known_state() const;
  void open_first();
  void renew();
  std::shared_ptr<const DictState> open_state();
  std::shared_ptr<const DictState> open_state_once();
  const Path& require_writable(const char* what) const;
  DictWriter& writer(const char* what);
  /// Like find_in_newest(), but prefetches pages that are not cached.
  template <class Find>
  std::shared_ptr<const DictState> find_paged(const DictKeys& keys, std::span<std::int64_t> rows,
                                              const Find& find);
  bool is_check_due() noexcept;
  std::shared_ptr<DictPaging> paging();
  void note_prefetch(bool was_missing);
  void note_time(std::chrono::steady_clock::duration taken, std::size_t num_keys);
  /// Returns the current state if it is not `old`; else opens and returns a newer one, or null if
  /// the dictionary has not changed.
  std::shared_ptr<const DictState> newer_than(const std::shared_ptr<const DictState>& old);

  std::optional<Path> path_;
  Mode mode_ = Mode::read;
  // These do not change after construction.
  Schema value_schema_;
  DictKeyType key_type_{};
  DictValueForm value_form_{};
  /// Guards the members below, except the atomic ones.
  mutable os::RenewingMutex mutex_{[this] { renew(); }};
  Dataset dataset_;
  std::unique_ptr<DictWriter> writer_;
  std::shared_ptr<const DictState> state_;
  std::shared_ptr<DictPaging> paging_;               ///< prefetches for the state sampled last
  std::chrono::steady_clock::time_point checked_{};  ///< time at which paging_ was created
  unsigned futile_prefetches_ = 0;       ///< consecutive prefetches of pages that were all cached
  unsigned pause_ = 0;                   ///< lookups to skip before the next prefetch
  std::atomic<bool> is_cold_{false};     ///< one of the sampled pages was not cached
  std::atomic<unsigned> num_single_{0};  ///< number of lookups of a single key
  bool is_behind_ = false;               ///< state_ may lack rows: since it was opened, this handle
                                         ///< has added rows, acquired the writer lock or was closed
  bool is_closed_ = false;
};

}  // namespace detail

using detail::DictHandle;

inline const std::shared_ptr<DictHandle>& handle_of(const MappedDict& dict) noexcept {
  return detail::Access::handle(dict);
}

template <class Find>
std::shared_ptr<const DictState> DictHandle::find_in_newest(const DictKeys& keys,
                                                            std::span<std::int64_t> rows,
                                                            const Find& find) {
  std::shared_ptr<const DictState> state = known_state();
  if (state->has_own_index) {  // its slots never point to rows that a writer adds
    if (auto newer = newer_than(state)) state = std::move(newer);
  }
  while (true) {
    const bool was_replaced = state->index->word(DictWord::writer) == kDictReplaced;
    const DictLookup lookup = find(*state);
    if (!was_replaced && lookup.newer.empty()) return state;
    auto newer = newer_with(state, lookup);
    if (newer == state) return state;
    // If the newer row to which a slot pointed has the key, it was the key's row at the time of the
    // lookup, so it is the result. Do not search again, because a writer may assign the key more
    // often than this process can open a new state.
    if (!was_replaced && newer->index->seed() == state->index->seed()) {
      take_newer(*newer, lookup, keys, rows);
      return newer;
    }
    state = std::move(newer);
  }
}

/// Timing a lookup takes about as long as looking up a single key in memory. So only every 64th
/// lookup of a single key is timed, unless a sampled page was not cached: then each one is timed.
inline bool DictHandle::is_check_due() noexcept {
  constexpr unsigned kTimedKeys = 64;
  const unsigned num_before = num_single_.load(std::memory_order_relaxed);
  num_single_.store(num_before + 1, std::memory_order_relaxed);
  return num_before % kTimedKeys == 0 || is_cold_.load(std::memory_order_relaxed);
}

template <class Key>
FoundRow DictHandle::find(const Key& key) {
  FoundRow found;
  const std::span keys(&key, 1);
  const std::span rows(&found.row, 1);
  const auto find = [&](const DictState& state) { return find_rows(state, keys, rows); };
  found.state = is_check_due() ? find_paged(keys, rows, find) : find_in_newest(keys, rows, find);
  return found;
}

template <class Find>
std::shared_ptr<const DictState> DictHandle::find_paged(const DictKeys& keys,
                                                        std::span<std::int64_t> rows,
                                                        const Find& find) {
  if (const auto paging = this->paging()) note_prefetch(paging->prefetch(keys));
  const auto begin = std::chrono::steady_clock::now();
  auto state = find_in_newest(keys, rows, find);
  note_time(std::chrono::steady_clock::now() - begin, num_keys_of(keys));
  return state;
}

}  // namespace tenfold
