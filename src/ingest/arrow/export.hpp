#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/buffer.hpp>
#include <tenfold/schema.hpp>
#include <tenfold/tensor.hpp>

#include "ingest/arrow/abi.hpp"

namespace tenfold {

/// The rows of one column that become one array of Arrow.
struct ExportedRows {
  std::int64_t size = 0;
  Tensor values;  ///< contiguous: [size, *shape], or the elements of all rows, or bytes
  /// Of rows of unequal length: [size + 1], from 0 on, in elements (of ragged text: in items).
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> item_offsets;  ///< of ragged text: [items + 1], from 0 on, in bytes
  Tensor valid;                            ///< bool [size], or empty: all rows have a value
};

/// An array whose buffers live until it is released, and whose children are its own.
class ArrowArrayMaker {
 public:
  ArrowArrayMaker(std::int64_t length, std::size_t num_children);

  /// No buffer: null.
  void add_null() { holder_->buffers.push_back(nullptr); }
  /// The bytes from `data` on, kept by `owner`.
  void add(const void* data, Buffer owner);
  void add(std::vector<std::int64_t> offsets);
  void add(std::vector<std::uint8_t> bits);
  /// The bits of `valid`, or no buffer if it is empty or all are true.
  void add_validity(const Tensor& valid);
  ArrowArray* child(std::size_t i) { return &holder_->children[i]; }
  /// Hands over to `out`.
  void move_to(ArrowArray* out);

 private:
  struct Holder {
    std::vector<Buffer> owners;
    std::vector<std::vector<std::int64_t>> offsets;
    std::vector<std::vector<std::uint8_t>> bits;
    std::vector<const void*> buffers;
    std::vector<ArrowArray> children;
    std::vector<ArrowArray*> child_pointers;
    ~Holder();
  };
  static void release(ArrowArray* array);

  std::unique_ptr<Holder> holder_;
  std::int64_t length_;
  std::int64_t null_count_ = 0;
};

/// Makes `out` the type of `schema`: a struct of its columns, records as structs.
/// Throws Error(unsupported) naming a column whose dtype Arrow does not have.
void export_arrow_schema(const Schema& schema, ArrowSchema* out);

/// Makes `out` the array of those rows of `column`.
void export_arrow_column(const Column& column, const ExportedRows& rows, ArrowArray* out);

/// A field of a struct: a column, or a record of fields.
struct ArrowField {
  std::string name;
  const Column* column = nullptr;  ///< null: a record
  std::size_t index = 0;           ///< of the column
  std::vector<ArrowField> fields;
};

/// The columns of `schema` as nested fields, records where their first column stands.
std::vector<ArrowField> arrow_fields(const Schema& schema);

}  // namespace tenfold
