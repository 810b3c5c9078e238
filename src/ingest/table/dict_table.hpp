#pragma once

#include <string>

#include <tenfold/mapped_dict.hpp>

#include "ingest/table/table_writer.hpp"

namespace tenfold {

/// Turns a complete table into a dictionary: adds the index of its column "key". `where` starts
/// messages. Throws Error(invalid_argument) if that column is missing or cannot be a key, and, if
/// `duplicates` is `error`, naming a duplicate key.
void add_dict_index(TableWriter& table, const std::string& where, DictValueForm form,
                    DuplicateKeys duplicates, Monitor* monitor);

}  // namespace tenfold
