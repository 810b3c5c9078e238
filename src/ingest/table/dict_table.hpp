#pragma once

#include <string>

#include <tenfold/mapped_dict.hpp>

#include "ingest/table/table_writer.hpp"

namespace tenfold {

/// Makes a dictionary of a table whose rows are all there: adds the index of its column "key".
/// `where` begins messages. Throws Error(invalid_argument) naming a key that comes twice, or if the
/// column makes no keys.
void add_dict_index(TableWriter& table, const std::string& where, DictValueForm form,
                    DuplicateKeys duplicates, Monitor* monitor);

}  // namespace tenfold
