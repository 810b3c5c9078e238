#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tenfold/mapped_dict.hpp>

#include "stores/dict_paging.hpp"
#include "stores/dict_state.hpp"
#include "stores/dict_writer.hpp"

namespace tenfold {

/// Rows of keys, and the state that they are rows of.
struct FoundRows {
  std::shared_ptr<const DictState> state;
  std::vector<std::int64_t> rows;
};

/// The row of a key, -1 if there is none.
struct FoundRow {
  std::shared_ptr<const DictState> state;
  std::int64_t row = -1;
};

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
  Dataset dataset() const;
  const Schema& value_schema() const noexcept { return value_schema_; }
  /// Looks a key up, in a newer state where a slot names a row that this one does not know.
  template <class Key>
  FoundRow find(const Key& key);
  /// The same for many keys; what of them is not in memory is read side by side.
  FoundRows find_many(const DictKeys& keys);
  void refresh();

  /// What it says of a key decides what becomes of it.
  enum class Write : std::uint8_t {
    assign,  ///< only keys that are there
    extend,  ///< only keys that are not there, each once
    put,     ///< both
  };
  void write(const DictKeys& keys, const Batch& values, Write kind);
  void flush();
  void close();
  /// Lets go of the folder while `replace` writes another dictionary in its place. It throws if
  /// rows were added since `source` was read.
  void replace(const std::function<void(const DictState& source)>& replace);

 private:
  using Lock = std::lock_guard<std::mutex>;

  /// Fills in `rows`, which are those of the state that is returned.
  template <class Keys>
  std::shared_ptr<const DictState> find_rows_of(const Keys& keys, std::span<std::int64_t> rows);
  /// Of some moment: slots that name newer rows tell of those.
  std::shared_ptr<const DictState> known_state() const;
  std::shared_ptr<const DictState> open_state();
  const Path& require_writable(const char* what) const;
  DictWriter& writer(const char* what);
  std::shared_ptr<DictPaging> paging();
  void note_time(std::chrono::steady_clock::time_point begin, std::size_t num_keys);
  /// Another state than `old`, if there is one.
  std::shared_ptr<const DictState> newer_than(const std::shared_ptr<const DictState>& old);

  std::optional<Path> path_;
  Mode mode_ = Mode::read;
  Schema value_schema_;       ///< stays the same
  mutable std::mutex mutex_;  ///< guards what follows
  Dataset dataset_;
  std::unique_ptr<DictWriter> writer_;
  std::shared_ptr<const DictState> state_;
  std::shared_ptr<DictPaging> paging_;              ///< of a state that was looked at
  std::chrono::steady_clock::time_point looked_{};  ///< when paging_ was made
  bool is_behind_ = false;                          ///< this handle has added rows since
  bool is_closed_ = false;
};

template <class Keys>
std::shared_ptr<const DictState> DictHandle::find_rows_of(const Keys& keys,
                                                          std::span<std::int64_t> rows) {
  std::shared_ptr<const DictState> state = known_state();
  while (true) {
    const bool was_replaced = state->index->word(DictWord::writer) == kDictReplaced;
    const DictLookup lookup = find_rows(*state, keys, rows);
    if (!was_replaced && !lookup.saw_newer) return state;
    auto newer = newer_than(state);
    if (newer == nullptr) return state;
    state = std::move(newer);
  }
}

template <class Key>
FoundRow DictHandle::find(const Key& key) {
  FoundRow found;
  found.state = find_rows_of(std::span<const Key>(&key, 1), std::span(&found.row, 1));
  return found;
}

}  // namespace tenfold
