#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/batch.hpp>
#include <tenfold/dataset.hpp>
#include <tenfold/io.hpp>
#include <tenfold/schema.hpp>

namespace tenfold {

namespace detail {
struct Access;
class DictHandle;
}  // namespace detail

/// The type of a dictionary's keys.
enum class DictKeyType : std::uint8_t {
  string,  ///< UTF-8
  bytes,   ///< any bytes
  int64,   ///< integers
};
/// Returns the name of the Python type: "str", "bytes", "int".
TENFOLD_API std::string to_string(DictKeyType type);

/// The form of the values. Python returns them in this form, C++ as a Batch.
enum class DictValueForm : std::uint8_t {
  tensor,   ///< one tensor: the column "value"
  scalar,   ///< one JSON scalar: the column "value"
  columns,  ///< a dict of tensors: one column per tensor
};

/// Handling of duplicate keys.
enum class DuplicateKeys : std::uint8_t {
  error,  ///< throw Error(invalid_argument), and store nothing
  last,   ///< the last value wins
};

/// Keys as an argument: {"house", "garden"}, {5, 7}, a vector of strings, or a vector or span of
/// string views or int64. Only the integers in braces are copied: other integers, and all strings,
/// must outlive this object. A lookup of integers in a dictionary of strings or bytes, or the
/// reverse, finds nothing.
class DictKeys {
 public:
  /// The keys as they are looked up.
  using Views = std::variant<std::span<const std::int64_t>, std::span<const std::string_view>>;

  /// Refers to integers, or to views of strings or bytes.
  template <class Range>
    requires(std::convertible_to<const Range&, std::span<const std::int64_t>> ||
             std::convertible_to<const Range&, std::span<const std::string_view>>)
  DictKeys(const Range& keys) {
    if constexpr (std::convertible_to<const Range&, std::span<const std::int64_t>>) {
      views_ = std::span<const std::int64_t>(keys);
    } else {
      views_ = std::span<const std::string_view>(keys);
    }
  }
  /// Refers to strings.
  DictKeys(const std::vector<std::string>& keys)
      : texts_(keys.begin(), keys.end()), views_(std::span<const std::string_view>(texts_)) {}
  /// Refers to strings in braces.
  DictKeys(std::initializer_list<std::string_view> keys)
      : texts_(keys), views_(std::span<const std::string_view>(texts_)) {}
  /// Copies integers in braces.
  DictKeys(std::initializer_list<std::int64_t> keys)
      : numbers_(keys), views_(std::span<const std::int64_t>(numbers_)) {}
  /// Moves the keys; views() remains valid.
  DictKeys(DictKeys&&) noexcept = default;
  DictKeys(const DictKeys&) = delete;
  DictKeys& operator=(const DictKeys&) = delete;
  DictKeys& operator=(DictKeys&&) = delete;

  /// The keys.
  const Views& views() const noexcept { return views_; }
  /// The number of keys.
  std::size_t size() const noexcept {
    return std::visit([](const auto& keys) { return keys.size(); }, views_);
  }

 private:
  std::vector<std::string_view> texts_;
  std::vector<std::int64_t> numbers_;
  Views views_;
};

/// Values of several keys: zeros or empty where `found` is false.
struct DictValues {
  Batch values;  ///< a row for each key
  Tensor found;  ///< bool [B]: true where the dictionary has the key
};

/// A dictionary on disk: keys (strings, bytes or 64-bit integers) to rows of tensors, found through
/// a mapped index. It is a data set with a column "key" and an index, so that tensordict and
/// Dataset open the folder, too.
///
///     tenfold::MappedDict words("embeddings");
///     tenfold::Tensor row = words.at("house").at("value");              // [1, 300]
///     tenfold::DictValues batch = words.get_many({"house", "garden"});  // [2, 300], and found
///
/// With Mode::write_through, keys can be added and values changed while other handles and processes
/// read. Each key has its old value or the new one, at every moment and after a crash.
///
/// A moved-from MappedDict can only be assigned or destroyed.
///
/// Thread safety: all const members may be called from any thread, also while one thread writes.
class TENFOLD_API MappedDict {
 public:
  /// Opens a dictionary. Throws what Dataset() throws, Error(invalid_argument) if `path` is not a
  /// dictionary, and Error(corrupt) if the index is damaged. The index may lack rows if the system
  /// crashed while the dictionary was open for writing, or if Dataset::append() added rows: then
  /// this constructor warns and rebuilds the index in memory.
  explicit MappedDict(const Path& path, Mode mode = Mode::read);
  /// Creates a handle of the dictionary whose root is `tree`, opened or in memory. Throws and warns
  /// as the constructor that opens a path.
  explicit MappedDict(TensorDict tree);

  /// The number of keys.
  std::int64_t size() const;
  /// The type of the keys.
  DictKeyType key_type() const noexcept;
  /// The form of the values.
  DictValueForm value_form() const noexcept;
  /// The columns of the values.
  const Schema& schema() const& noexcept TENFOLD_LIFETIMEBOUND;
  /// Overload for temporaries: returns the schema by value.
  Schema schema() && { return std::as_const(*this).schema(); }

  /// True if the dictionary has the key.
  bool contains(std::string_view key) const;
  /// True if the dictionary has the key.
  bool contains(std::int64_t key) const;
  /// The value of the key, as a batch of one row. Throws Error(key_not_found).
  Batch at(std::string_view key) const;
  /// The value of the key, as a batch of one row. Throws Error(key_not_found).
  Batch at(std::int64_t key) const;
  /// Gathers the values of the keys, in their order; missing keys get zeros or empty values.
  DictValues get_many(const DictKeys& keys) const;
  /// Returns the row index in dataset() of each key, or -1 if the key is missing. Valid until
  /// compact().
  std::vector<std::int64_t> rows(const DictKeys& keys) const;
  /// The values at row indices that rows() returned; -1 gives zeros or empty values. Throws
  /// Error(invalid_argument) for an index that is not a row.
  Batch at_rows(std::span<const std::int64_t> rows) const;
  /// Overload for a list in braces: at_rows({0, 2}).
  Batch at_rows(std::initializer_list<std::int64_t> rows) const {
    return at_rows(std::span<const std::int64_t>(rows.begin(), rows.size()));
  }

  /// All rows, including rows that assign() superseded, with the keys in the column "key".
  Dataset dataset() const;
  /// The row index of each key's value, in insertion order: an assigned key keeps its position.
  /// Valid until compact().
  std::vector<std::int64_t> ordered_rows() const;
  /// True if no row is superseded.
  bool is_dense() const;

  // assign(), extend(), compact() and flush() throw Error(unsupported) after close(), and in any
  // mode except Mode::write_through. Only one process at a time can write: if another process does,
  // they throw Error(io) (EBUSY) naming that process.

  /// Assigns new values to existing keys: `values` has a row for each key and the columns of
  /// schema(). The old rows remain, superseded, until compact(). Throws Error(key_not_found) naming
  /// missing keys, Error(invalid_argument) for keys of another type and values that do not fit. If
  /// it throws, nothing is changed. Each key changes atomically, one after another; after a crash,
  /// some keys may keep their old values until a process writes again.
  void assign(const DictKeys& keys, const Batch& values);
  /// Adds keys atomically. Throws Error(invalid_argument) naming duplicate or existing keys, and
  /// for keys of another type, strings that are not UTF-8, and values that do not fit. If it
  /// throws, nothing is added. With DuplicateKeys::last, duplicate and existing keys are no error:
  /// as assign() does, extend() gives them their last value in `values`.
  void extend(const DictKeys& keys, const Batch& values,
              DuplicateKeys duplicates = DuplicateKeys::error);
  /// Rewrites the dictionary without superseded rows, and replaces it atomically. Throws Error(io)
  /// (EBUSY) if another handle has it open for writing, or has added rows or replaced the
  /// dictionary since the call began. Where the file system has no locks, rows that another process
  /// adds at the end of the call are lost.
  void compact(Monitor* monitor = nullptr);
  /// Makes all changes durable.
  void flush();
  /// Calls flush() if this handle has written, and allows another process to write. This handle can
  /// still read. Throws Error(io) (ESTALE) if the folder was moved after this handle wrote; even
  /// then, another process may write.
  void close();
  /// Makes dataset() and at_rows() include the rows that other handles have added. Lookups by key,
  /// size() and is_dense() include them without refresh().
  void refresh();

  /// Checks that every key is found at its row and that the index has one slot for each key. Reads
  /// all keys. Returns the faults, of which at most 10 name wrong keys; empty if there are none.
  std::vector<Problem> check() const;

 private:
  friend struct detail::Access;

  std::shared_ptr<detail::DictHandle> handle_;
};

/// Options of MappedDictBuilder.
struct MappedDictOptions {
  DuplicateKeys duplicates = DuplicateKeys::error;  ///< handling of duplicate keys
  bool overwrite = true;       ///< false: Error(io) with errno EEXIST if the path exists
  bool durable = true;         ///< fsync the files before commit() returns
  Monitor* monitor = nullptr;  ///< observes commit()
  /// Lower bound of the number of keys. The constructor throws Error(io) (ENOSPC) if so many keys
  /// cannot fit on the disk.
  std::int64_t expected_keys = 0;
};

/// Writes a dictionary in bounded memory; commit() publishes it at `path` atomically. A builder
/// that is destroyed before commit() leaves no files. After a write has failed, for example because
/// the disk is full, append() and commit() throw Error(invalid_argument).
///
///     tenfold::MappedDictBuilder builder("embeddings", tenfold::DictKeyType::string, schema);
///     builder.append(keys, batch);
///     builder.commit();
class TENFOLD_API MappedDictBuilder {
 public:
  /// Starts a dictionary at `path`. `schema` describes the values: one column "value" unless the
  /// form is `columns`. Throws Error(io) as described at MappedDictOptions, and
  /// Error(invalid_argument) for a column or record called "key" or, unless the form is `columns`,
  /// for columns other than one "value".
  MappedDictBuilder(const Path& path, DictKeyType keys, const Schema& schema,
                    const MappedDictOptions& options = {},
                    DictValueForm form = DictValueForm::columns);
  MappedDictBuilder(const MappedDictBuilder&) = delete;
  MappedDictBuilder& operator=(const MappedDictBuilder&) = delete;
  /// Removes unpublished files.
  ~MappedDictBuilder();

  /// Appends a row of `values` for each key. Throws Error(invalid_argument) for keys of another
  /// type, strings that are not UTF-8, and values that do not fit.
  void append(const DictKeys& keys, const Batch& values);
  /// Publishes the dictionary. Throws Error(invalid_argument) naming a duplicate key
  /// (DuplicateKeys::error).
  void commit();

 private:
  struct TENFOLD_LOCAL State;
  std::unique_ptr<State> state_;
};

/// Builds a dictionary from the rows of `source`. Its keys are the column `key` of `source`
/// (strings, bytes, or integers except uint64; not nullable), which becomes "key". Throws
/// Error(key_not_found) for a missing column, Error(invalid_argument) for a column of another type,
/// and what MappedDictBuilder throws. Ignores MappedDictOptions::expected_keys.
TENFOLD_API void build_mapped_dict(const Path& path, const Dataset& source, std::string_view key,
                                   const MappedDictOptions& options = {});

}  // namespace tenfold
