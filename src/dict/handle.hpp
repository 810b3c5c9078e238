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

namespace tenfold {

/// Changes a dictionary while others read it.
///
/// The rows are the truth: of rows with one key the last one is the key's, and what is not
/// committed is not there. The index only finds them: a new key's slot is put in before its row is
/// committed (readers ignore rows beyond those that are), a changed key's slot names the new row
/// once that is committed. So a killed writer leaves the keys before or after a change; who writes
/// next finds in the index's header that it was not closed, and makes it anew of the rows.
///
/// Thread safety: one thread at a time.
class DictWriter {
 public:
  /// Locks the dictionary against other writers, and mends what a killed one has left. `dataset`
  /// was opened with Mode::write_through.
  DictWriter(Path path, Dataset dataset);
  DictWriter(const DictWriter&) = delete;
  DictWriter& operator=(const DictWriter&) = delete;

  /// The rows of keys now, -1 of those that are not there.
  std::vector<std::int64_t> find(const DictKeys& keys);
  /// Adds a row for each key; `old_rows` are those that find() gave.
  void write(const DictKeys& keys, std::span<const std::int64_t> old_rows, const Batch& values);
  void flush();
  void close();

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
  void take_back(const Change& change, std::size_t count);
  void set_dead(std::uint64_t num_dead, std::uint64_t num_rows);
  Batch with_keys(const DictKeys& keys, const Batch& values) const;
  Path values_folder() const;

  Path path_;
  Dataset dataset_;
  os::Directory root_;
  std::shared_ptr<const DictState>
      state_;  ///< of some moment; of rows added since it knows nothing
  bool is_behind_ = true;
  std::uint64_t num_rows_ = 0;
  std::uint64_t num_dead_ = 0;
  std::unique_ptr<DictIndex> index_;  ///< mapped for writing
  std::string index_file_;
  bool is_begun_ = false;  ///< the header says that somebody writes
};

/// Rows of keys, and the state that they are rows of.
struct FoundRows {
  std::shared_ptr<const DictState> state;
  std::vector<std::int64_t> rows;
};

struct FoundValues {
  FoundRows found;
  Batch values;  ///< zeros or nothing where a row is -1
};

/// The row of a key, -1 if there is none.
struct FoundRow {
  std::shared_ptr<const DictState> state;
  std::int64_t row = -1;
};

namespace detail {

/// What a MappedDict is a handle of: what was opened, as it is now.
///
/// Thread safety: all members may be called from any thread.
class DictHandle {
 public:
  DictHandle(const Path& path, Mode mode);
  explicit DictHandle(TensorDict tree);
  DictHandle(const DictHandle&) = delete;
  DictHandle& operator=(const DictHandle&) = delete;
  ~DictHandle();

  /// With all that this handle has written.
  std::shared_ptr<const DictState> state();
  /// With what others have written as well.
  std::shared_ptr<const DictState> newest();
  Dataset dataset() const;
  const Schema& value_schema() const noexcept { return value_schema_; }
  DictKeyType key_type() const noexcept { return key_type_; }
  DictValueForm value_form() const noexcept { return value_form_; }
  /// Looks a key up, in a newer state where a slot names a row that this one does not know.
  template <class Key>
  FoundRow find(const Key& key);
  /// The same for many keys; what of them is not in memory is read side by side.
  FoundRows find_many(const DictKeys& keys);
  FoundValues get_many(const DictKeys& keys);
  void refresh();

  /// What it says of a key decides what becomes of it.
  enum class Write : std::uint8_t {
    assign,  ///< only keys that are there
    extend,  ///< only keys that are not there, each once
    put,     ///< both
  };
  void write(const DictKeys& keys, const Batch& values, Write kind);
  /// Keeps others from writing, as write() does, before there is anything to write.
  void begin_writing();
  void flush();
  void close();
  /// Lets go of the folder while `replace` writes another dictionary in its place. It throws if
  /// rows were added since `source` was read.
  void replace(const std::function<void(const std::shared_ptr<const DictState>& source)>& replace);

 private:
  using Lock = std::lock_guard<std::mutex>;

  /// Has `find` look for the rows of keys; the state that has them all.
  template <class Find>
  std::shared_ptr<const DictState> find_in_newest(const DictKeys& keys,
                                                  std::span<std::int64_t> rows, const Find& find);
  std::shared_ptr<const DictState> newer_with(std::shared_ptr<const DictState> state,
                                              const DictLookup& lookup);
  /// Of some moment: slots that name newer rows tell of those.
  std::shared_ptr<const DictState> known_state() const;
  void open_first();
  std::shared_ptr<const DictState> open_state();
  std::shared_ptr<const DictState> open_state_once();
  const Path& require_writable(const char* what) const;
  DictWriter& writer(const char* what);
  /// The same, but what is not in memory is read side by side before it is touched.
  template <class Find>
  std::shared_ptr<const DictState> find_paged(const DictKeys& keys, std::span<std::int64_t> rows,
                                              const Find& find);
  bool is_look_due() noexcept;
  std::shared_ptr<DictPaging> paging();
  void note_asking(bool was_missing);
  void note_time(std::chrono::steady_clock::duration taken, std::size_t num_keys);
  /// Another state than `old`, if there is one.
  std::shared_ptr<const DictState> newer_than(const std::shared_ptr<const DictState>& old);

  std::optional<Path> path_;
  Mode mode_ = Mode::read;
  // These stay the same.
  Schema value_schema_;
  DictKeyType key_type_{};
  DictValueForm value_form_{};
  mutable std::mutex mutex_;  ///< guards what follows
  Dataset dataset_;
  std::unique_ptr<DictWriter> writer_;
  std::shared_ptr<const DictState> state_;
  std::shared_ptr<DictPaging> paging_;              ///< of a state that was looked at
  std::chrono::steady_clock::time_point looked_{};  ///< when paging_ was made
  unsigned in_vain_ = 0;              ///< asked for pages that were there, one time after the other
  unsigned pause_ = 0;                ///< lookups before pages are asked for again
  std::atomic<bool> is_cold_{false};  ///< something was missing in memory
  std::atomic<unsigned> num_alone_{0};  ///< keys that were looked up alone
  bool is_behind_ = false;              ///< this handle has added rows since
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
  while (true) {
    const bool was_replaced = state->index->word(DictWord::writer) == kDictReplaced;
    const DictLookup lookup = find(*state);
    if (!was_replaced && lookup.newer.empty()) return state;
    auto newer = newer_with(state, lookup);
    if (newer == state) return state;
    // A row that a slot named is the answer of that moment, whatever it names by now: a writer may
    // assign the key more often than we can open its rows.
    if (!was_replaced && newer->index->seed() == state->index->seed()) {
      take_newer(*newer, lookup, keys, rows);
      return newer;
    }
    state = std::move(newer);
  }
}

/// Keys that are looked up alone take less time than to look at a clock: one in some is watched,
/// and each while something is not in memory.
inline bool DictHandle::is_look_due() noexcept {
  constexpr unsigned kKeysAWatch = 64;
  const unsigned num_before = num_alone_.load(std::memory_order_relaxed);
  num_alone_.store(num_before + 1, std::memory_order_relaxed);
  return num_before % kKeysAWatch == 0 || is_cold_.load(std::memory_order_relaxed);
}

template <class Key>
FoundRow DictHandle::find(const Key& key) {
  FoundRow found;
  const std::span keys(&key, 1);
  const std::span rows(&found.row, 1);
  const auto find = [&](const DictState& state) { return find_rows(state, keys, rows); };
  found.state = is_look_due() ? find_paged(keys, rows, find) : find_in_newest(keys, rows, find);
  return found;
}

template <class Find>
std::shared_ptr<const DictState> DictHandle::find_paged(const DictKeys& keys,
                                                        std::span<std::int64_t> rows,
                                                        const Find& find) {
  if (const auto paging = this->paging()) note_asking(paging->ask(keys));
  const auto begin = std::chrono::steady_clock::now();
  auto state = find_in_newest(keys, rows, find);
  note_time(std::chrono::steady_clock::now() - begin, num_keys_of(keys));
  return state;
}

}  // namespace tenfold
