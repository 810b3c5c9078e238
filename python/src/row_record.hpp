#pragma once

#include <memory>
#include <vector>

#include "row_reader.hpp"

namespace tenfold::python {

/// A key of a record: its value is a column or a record, or is ignored.
struct RowReader::Entry {
  /// The record of the value; creates it if necessary.
  Record& members();

  nb::object key;
  KeyPath path;
  RowColumn* column = nullptr;
  std::unique_ptr<Record> record;
  bool is_ignored = false;
  bool was_seen = false;
};

/// The keys of the dicts at one path of the rows.
struct RowReader::Record {
  KeyPath path;
  std::vector<std::unique_ptr<Entry>> entries;
  nb::dict index;  ///< key -> index of its entry

  Entry& add(nb::handle key) {
    entries.push_back(std::make_unique<Entry>());
    Entry& made = *entries.back();
    made.key = nb::borrow(key);
    made.path = path;
    made.path.push_back(utf8(key));
    index[key] = entries.size() - 1;
    return made;
  }

  /// Calls `use` with each entry in the order in which they first appeared. The entries of a record
  /// follow the entry of that record.
  template <class Use>
  void for_each(const Use& use) const {
    for (const auto& entry : entries) {
      use(*entry);
      if (entry->record) entry->record->for_each(use);
    }
  }
};

inline RowReader::Record& RowReader::Entry::members() {
  if (!record) {
    record = std::make_unique<Record>();
    record->path = path;
  }
  return *record;
}

}  // namespace tenfold::python
