#pragma once

#include <string>

#include <tenfold/mapped_dict.hpp>

#include "ingest/table/table_writer.hpp"

namespace tenfold {

/// Turns a complete table into a dictionary: adds the index of its column "key". `where` starts
/// messages. Throws Error(invalid_argument) naming a duplicate key, or if the column cannot be a
/// key.
void add_dict_index(TableWriter& table, const std::string& where, DictValueForm form,
                    DuplicateKeys duplicates, Monitor* monitor);

}  // namespace tenfold
