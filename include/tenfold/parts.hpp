#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/dataset.hpp>
#include <tenfold/io.hpp>

namespace tenfold {

// Data sets of parts: a folder whose parts are data sets, each in a folder of its own, and whose
// file `%parts.json` says which they are and in which order. Dataset, open(), verify() and all
// other calls take it as they take a data set in one folder. Several hosts write parts at the same
// time; the data set changes when its `%parts.json` is replaced, in one step.
//
//   tenfold::ingest({"a.csv"}, tenfold::part_path("ds", 0, 2), {.schema = schema});  // host 0
//   tenfold::ingest({"b.csv"}, tenfold::part_path("ds", 1, 2), {.schema = schema});  // host 1
//   tenfold::Dataset ds = tenfold::commit_parts("ds");                               // one of them

/// "part-00003-of-00016": the folder of one of `count` parts that are written at the same time.
/// Throws Error(invalid_argument) unless 0 <= index < count.
TENFOLD_API std::string part_name(std::int64_t index, std::int64_t count);

/// The path of that part of the data set at `path`, to be written. Throws Error(io) (EEXIST) if the
/// data set has such a part already, Error(invalid_argument) if there is another data set.
TENFOLD_API Path part_path(const Path& path, std::int64_t index, std::int64_t count);

/// Creates a data set of these columns without parts, durably, and opens it with
/// Mode::write_through. Rows that are appended go to parts of some GiB; other processes may write
/// parts, which commit_parts() adds. Throws Error(io) (EEXIST) if `path` exists and is no empty
/// folder, Error(invalid_argument) for a schema without columns.
TENFOLD_API Dataset create_parts(const Path& path, const Schema& schema);

struct CommitPartsOptions {
  /// Folders below the data set, in this order; empty: all that it does not have yet, in the order
  /// of their names.
  std::vector<std::string> parts{};
  bool durable = true;
  Monitor* monitor = nullptr;
};

/// Adds parts to the data set at `path`, behind those that it has; all of them or none. Each is
/// checked first: its columns, the number of its rows, the sizes of its files. Without a
/// `%parts.json` it makes one, with the schema of the first part. It removes what killed writers of
/// parts have left: hidden folders whose lease (`<folder>.lease`) nobody holds.
///
/// A job that writes several parts may stage them in `<path>/.<job>.tenfold-staging`, under that
/// lease, and move them to `<path>/<job>-<name>` before it commits them by name: until then no
/// other call takes them, and if the job is killed they are removed.
///
/// Throws Error(file_not_found) if one of the parts that part_name() counts is missing,
/// Error(corrupt) for a part of other columns or with too short files, Error(invalid_argument) for
/// a folder that is no data set, Error(io) (EBUSY) while another process changes the data set or
/// appends to a part.
TENFOLD_API Dataset commit_parts(const Path& path, const CommitPartsOptions& options = {});

struct CompactOptions {
  bool durable = true;
  int num_threads = 0;  ///< 0: min(8, cores)
  Monitor* monitor = nullptr;
};

/// Replaces a data set of parts by one in one folder with the same rows, atomically, in bounded
/// memory. It takes the space of both while it is written. Handles of the data set that are open
/// keep the parts that they have open; for others they throw Error(io) (ESTALE).
///
/// Throws Error(invalid_argument) for another data set, or if the folder holds what the data set
/// does not name; Error(io) (EBUSY) while another process changes it.
TENFOLD_API Dataset compact(const Path& path, const CompactOptions& options = {});

}  // namespace tenfold
