#pragma once

#include "common.hpp"
#include "ingest/source_report.hpp"

namespace tenfold::python {

/// A dict with "num_rows", "num_bad_rows", "num_files", "num_bytes", "promotions" and "ignored".
nb::dict dict_of(const IngestReport& report);
/// The dict of the IngestReport, with the additional key "schema".
nb::dict dict_of(const SourceReport& report);

}  // namespace tenfold::python
