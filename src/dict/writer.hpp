#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <tenfold/mapped_dict.hpp>

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

}  // namespace tenfold
