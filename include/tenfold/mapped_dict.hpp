#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include <tenfold/batch.hpp>
#include <tenfold/dataset.hpp>
#include <tenfold/io.hpp>
#include <tenfold/schema.hpp>

namespace tenfold {

struct DictState;
class DictHandle;

enum class DictKeyType : std::uint8_t { string, bytes, int64 };
/// "str", "bytes", "int": as Python says it.
TENFOLD_API std::string_view name(DictKeyType type) noexcept;

/// What the values were when they were given, which is what they come back as.
enum class DictValueForm : std::uint8_t {
  tensor,   ///< one tensor: the column "value"
  scalar,   ///< one JSON scalar: the column "value"
  columns,  ///< a dict of tensors: a column each
};

/// What becomes of a key that comes again.
enum class DuplicateKeys : std::uint8_t {
  error,  ///< Error(invalid_argument), and nothing is stored
  last,   ///< the last value is the key's
};

/// Keys, in memory that is somebody else's. Of a dictionary with keys of the other kind none of
/// them is there.
using DictKeys = std::variant<std::span<const std::int64_t>, std::span<const std::string_view>>;

/// Values of several keys. Where `found` is false, they are zeros or empty.
struct DictValues {
  Batch values;
  Tensor found;  ///< bool [B]
};

/// A dictionary on disk: keys (text, bytes or 64-bit integers) to rows of tensors, found through an
/// index that is mapped, not read. It is a data set with a column "key" and an index beside it, so
/// that tensordict and Dataset open the folder, too.
///
///   tenfold::MappedDict words("embeddings");
///   tenfold::Tensor row = words.at("house").at("value");                 // [1, 300]
///   const std::array<std::string_view, 2> keys = {"house", "garden"};
///   tenfold::DictValues batch = words.get_many(keys);                    // [2, 300], and found
///
/// Opened with Mode::write_through keys can be added and values changed while others read; each
/// key's value is, at every moment and after any kill, the one before or the new one.
///
/// Thread safety: all const members may be called from any thread, also while one thread writes.
class TENFOLD_API MappedDict {
 public:
  /// Throws what Dataset() throws, Error(invalid_argument) if it is no dictionary, Error(corrupt)
  /// if its index cannot belong to it.
  explicit MappedDict(const Path& path, Mode mode = Mode::read);
  explicit MappedDict(TensorDict tree);

  std::int64_t size() const;
  DictKeyType key_type() const noexcept;
  DictValueForm value_form() const noexcept;
  /// The columns of the values.
  const Schema& schema() const noexcept TENFOLD_LIFETIMEBOUND;

  bool contains(std::string_view key) const;
  bool contains(std::int64_t key) const;
  /// The value: a batch of one row. Throws Error(key_not_found).
  Batch at(std::string_view key) const;
  Batch at(std::int64_t key) const;
  /// The values of all keys by one gathering; tens of thousands on several threads.
  DictValues get_many(const DictKeys& keys) const;
  /// The rows of the keys in dataset(), -1 where there is none. They hold until compact().
  std::vector<std::int64_t> rows(const DictKeys& keys) const;
  /// The values of rows that rows() gave; -1 gives zeros or nothing.
  Batch at_rows(std::span<const std::int64_t> rows) const;

  /// All rows, with the column "key": also earlier ones of keys that were assigned anew.
  Dataset dataset() const;
  /// The row of each key's value, in the order in which the keys were added: a key that was
  /// assigned keeps its place. They hold until compact().
  std::vector<std::int64_t> ordered_rows() const;
  /// True if every row is the value of a key.
  bool is_dense() const;

  // What follows needs Mode::write_through; otherwise Error(unsupported). One process writes at a
  // time: Error(io) (EBUSY) names the other one.

  /// Gives keys that are there new values: `values` has a row for each key and the columns of
  /// schema(). The old rows stay, unused, until compact(). Throws Error(key_not_found), naming keys
  /// that are not there; nothing is changed then.
  void assign(const DictKeys& keys, const Batch& values);
  /// Adds keys, all of them at once. Throws Error(invalid_argument), naming keys that come twice or
  /// are there already, with nothing added; with `last` those are assigned.
  void extend(const DictKeys& keys, const Batch& values,
              DuplicateKeys duplicates = DuplicateKeys::error);
  /// Writes the dictionary anew without unused rows, and replaces it in one step. No other process
  /// may write meanwhile: what one adds and closes in between is not in the new one.
  void compact(Monitor* monitor = nullptr);
  /// Brings everything to the device: a power loss takes none of it any more.
  void flush();
  /// flush(); another process may write afterwards. Reading goes on.
  void close();
  /// Sees what others have added. Values that others assign are seen without it.
  void refresh();

  /// Every key is found at its row, and no slot names a row that is not there: what is wrong, or
  /// nothing. Reads all keys.
  std::vector<Problem> check() const;

  /// What it is a handle of.
  const std::shared_ptr<DictHandle>& handle() const noexcept { return handle_; }

 private:
  std::shared_ptr<DictHandle> handle_;
};

struct MappedDictOptions {
  DuplicateKeys duplicates = DuplicateKeys::error;
  bool overwrite = true;  ///< false: Error(io) with errno EEXIST if something is at the path
  bool durable = true;    ///< on the device when commit() returns
  Monitor* monitor = nullptr;
  std::int64_t expected_keys = 0;  ///< that will come at least: Error(io) (ENOSPC) at once if they
                                   ///< cannot fit on the disk
};

/// Writes a dictionary beside `path`, in bounded memory, published at once by commit(); destroyed
/// before that, nothing is left.
///
///   tenfold::MappedDictBuilder builder("embeddings", tenfold::DictKeyType::string, schema);
///   builder.append(keys, batch);
///   builder.commit();
class TENFOLD_API MappedDictBuilder {
 public:
  /// `schema`: of the values; of one column "value" unless the form is `columns`. Throws as
  /// ingest(), and Error(invalid_argument) for a column called "key".
  MappedDictBuilder(const Path& path, DictKeyType keys, const Schema& schema,
                    const MappedDictOptions& options = {},
                    DictValueForm form = DictValueForm::columns);
  MappedDictBuilder(const MappedDictBuilder&) = delete;
  MappedDictBuilder& operator=(const MappedDictBuilder&) = delete;
  ~MappedDictBuilder();

  /// A row of `values` for each key. Throws Error(invalid_argument) for keys of the other kind and
  /// values that do not fit.
  void append(const DictKeys& keys, const Batch& values);
  /// Throws Error(invalid_argument) naming a key that came twice (DuplicateKeys::error).
  void commit();

 private:
  struct TENFOLD_LOCAL State;
  std::unique_ptr<State> state_;
};

/// A dictionary of the rows of `source` by the values of its column `key` (text, bytes or int64),
/// which becomes "key". Throws Error(key_not_found) for a column that is not there,
/// Error(invalid_argument) for one that makes no keys, and as MappedDictBuilder.
TENFOLD_API void build_mapped_dict(const Path& path, const Dataset& source, std::string_view key,
                                   const MappedDictOptions& options = {});

}  // namespace tenfold
