#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/dataset.hpp>
#include <tenfold/io.hpp>

namespace tenfold {

// Data sets of parts: a folder with one subfolder per part, and a file `%parts.json` that lists the
// parts in the order of their rows. Each part is itself a data set. Dataset, open(), verify() and
// other functions that read accept the folder like a data set in one folder. Several hosts can
// write parts concurrently; readers see new parts only when `%parts.json` is replaced, which is
// atomic.
//
//   tenfold::ingest({"a.csv"}, tenfold::part_path("ds", 0, 2), {.schema = schema});  // host 0
//   tenfold::ingest({"b.csv"}, tenfold::part_path("ds", 1, 2), {.schema = schema});  // host 1
//   tenfold::Dataset ds = tenfold::commit_parts("ds");                               // one of them

/// Returns "part-00003-of-00016": the name of one of `count` parts that are written concurrently.
/// Throws Error(invalid_argument) unless 0 <= index < count.
TENFOLD_API std::string part_name(std::int64_t index, std::int64_t count);

/// Returns the path at which to write part `index` of `count` of the data set at `path`. Throws
/// Error(io) (EEXIST) if the data set already has a part of this name. Throws
/// Error(invalid_argument) if `path` is a data set in one folder, or unless 0 <= index < count.
TENFOLD_API Path part_path(const Path& path, std::int64_t index, std::int64_t count);

/// Creates a data set of these columns that has no parts yet, durably, and opens it with
/// Mode::write_through. Rows that are appended go to parts of about 1 GiB; other processes may
/// write parts, which commit_parts() adds. Throws Error(io) (EEXIST) if `path` exists and is not an
/// empty folder, and Error(invalid_argument) for a schema without columns. Creates missing folders
/// above `path`.
TENFOLD_API Dataset create_parts(const Path& path, const Schema& schema);

/// Options of commit_parts().
struct CommitPartsOptions {
  /// The folders to add, in this order; empty: all folders that are neither parts of the data set
  /// nor staged by another job, sorted by name.
  std::vector<std::string> parts{};
  bool durable = true;         ///< fsync the files before the call returns
  Monitor* monitor = nullptr;  ///< observes the call
};

/// Adds parts to the data set at `path`, after its existing parts. Adds all of them or none. Before
/// that, checks the columns, the number of rows and the file sizes of each part. Creates
/// `%parts.json`, with the schema of the first part, if it does not exist. Removes the leftovers of
/// crashed writers: hidden folders whose lease (`<folder>.lease`) no process holds.
///
/// A job that writes several parts may stage them in `<path>/.<job>.tenfold-staging` while it holds
/// the lease of that folder. It then moves them to `<path>/<job>-<number>`, with at least six
/// digits, and commits them by name. Until the job releases the lease, calls whose options list no
/// parts do not add the moved folders. If the job crashes before the commit, the next call removes
/// the moved folders.
///
/// Throws Error(file_not_found) if a listed part does not exist. If the options list no parts, also
/// throws it if a new folder has a name as part_name() returns it and one of the `count` parts is
/// missing. Throws Error(corrupt) for a part with other columns or with files that are too short.
/// Throws Error(invalid_argument) if there are neither parts to add nor a `%parts.json`, or if
/// `path` is a data set in one folder. Throws it, too, for a part that is not a data set in one
/// folder, has no columns, is a circular buffer, or is already in the data set. Throws Error(io)
/// (EBUSY) while another process changes the data set or appends to a part.
TENFOLD_API Dataset commit_parts(const Path& path, const CommitPartsOptions& options = {});

/// Options of compact().
struct CompactOptions {
  bool durable = true;         ///< fsync the files before the call returns
  int num_threads = 0;         ///< 0: TENFOLD_NUM_THREADS, or min(8, cores)
  Monitor* monitor = nullptr;  ///< observes the call
};

/// Replaces a data set of parts, atomically, by a data set in one folder with the same rows. Needs
/// bounded memory, and disk space for both data sets until it returns. Open handles of the old data
/// set can still read the parts that they have open; for other parts they throw Error(io) (ESTALE).
///
/// Throws Error(invalid_argument) for a data set in one folder, or if the folder contains files
/// that do not belong to the data set. Throws Error(io) (EBUSY) while another process changes the
/// data set.
TENFOLD_API Dataset compact(const Path& path, const CompactOptions& options = {});

}  // namespace tenfold
