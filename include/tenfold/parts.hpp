#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/dataset.hpp>
#include <tenfold/io.hpp>

namespace tenfold {

// Data sets of parts: a folder with a subfolder for each part, which is a data set, and a file
// `%parts.json` that lists the parts in order. Dataset, open(), verify() and all other functions
// accept it like a data set in one folder. Several hosts can write parts concurrently; the data set
// changes atomically, when `%parts.json` is replaced.
//
//   tenfold::ingest({"a.csv"}, tenfold::part_path("ds", 0, 2), {.schema = schema});  // host 0
//   tenfold::ingest({"b.csv"}, tenfold::part_path("ds", 1, 2), {.schema = schema});  // host 1
//   tenfold::Dataset ds = tenfold::commit_parts("ds");                               // one of them

/// Returns "part-00003-of-00016": the name of one of `count` parts that are written concurrently.
/// Throws Error(invalid_argument) unless 0 <= index < count.
TENFOLD_API std::string part_name(std::int64_t index, std::int64_t count);

/// Returns the path at which to write that part of the data set at `path`. Throws Error(io)
/// (EEXIST) if the data set already has such a part, Error(invalid_argument) if `path` is a data
/// set without parts.
TENFOLD_API Path part_path(const Path& path, std::int64_t index, std::int64_t count);

/// Creates a data set of these columns without parts, durably, and opens it with
/// Mode::write_through. Rows that are appended go to parts of some GiB; other processes may write
/// parts, which commit_parts() adds. Throws Error(io) (EEXIST) if `path` exists and is not an empty
/// folder, Error(invalid_argument) for a schema without columns.
TENFOLD_API Dataset create_parts(const Path& path, const Schema& schema);

/// Options of commit_parts().
struct CommitPartsOptions {
  /// Folders of the data set, in this order; empty: all that it does not contain yet, sorted by
  /// name.
  std::vector<std::string> parts{};
  bool durable = true;         ///< fsynced when the call returns
  Monitor* monitor = nullptr;  ///< observes the call
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
/// Error(corrupt) for a part with other columns or with files that are too short,
/// Error(invalid_argument) for a folder that is not a data set, Error(io) (EBUSY) while another
/// process changes the data set or appends to a part.
TENFOLD_API Dataset commit_parts(const Path& path, const CommitPartsOptions& options = {});

/// Options of compact().
struct CompactOptions {
  bool durable = true;         ///< fsynced when the call returns
  int num_threads = 0;         ///< 0: min(8, cores)
  Monitor* monitor = nullptr;  ///< observes the call
};

/// Replaces a data set of parts by one in one folder with the same rows, atomically, in bounded
/// memory. Needs disk space for both until it returns. Open handles of the data set keep the parts
/// that they have open, and throw Error(io) (ESTALE) for others.
///
/// Throws Error(invalid_argument) for a data set without parts, or if the folder contains other
/// files; Error(io) (EBUSY) while another process changes it.
TENFOLD_API Dataset compact(const Path& path, const CompactOptions& options = {});

}  // namespace tenfold
