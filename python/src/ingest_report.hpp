#pragma once

#include "common.hpp"
#include "ingest/source_report.hpp"

namespace tenfold::python {

/// {"num_rows", "num_bad_rows", "promotions", "ignored_columns", "schema"}.
nb::dict dict_of(const SourceReport& report);

}  // namespace tenfold::python
