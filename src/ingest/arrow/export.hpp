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

/// The rows of one column that become one Arrow array.
struct ExportedRows {
  std::int64_t size = 0;
  Tensor values;  ///< contiguous: [size, *shape]; the elements of all ragged rows, or the bytes of
                  ///< all strings
  /// Ragged rows and strings: offsets [size + 1], starting at 0, in elements (for strings in bytes,
  /// for ragged strings in items).
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> item_offsets;  ///< ragged strings: offsets [items + 1], starting at 0,
                                           ///< in bytes
  Tensor valid;                            ///< bool [size]; empty: all rows have a value
};

/// Builds an array that keeps its buffers alive and owns its children until it is released.
class ArrowArrayMaker {
 public:
  ArrowArrayMaker(std::int64_t length, std::size_t num_children);

  /// Adds a null buffer.
  void add_null() { holder_->buffers.push_back(nullptr); }
  /// Adds the bytes at `data`, which `owner` keeps alive.
  void add(const void* data, Buffer owner);
  void add(std::vector<std::int64_t> offsets);
  void add(std::vector<std::uint8_t> bits);
  /// Adds `valid` as bits, or a null buffer if it is empty or all true.
  void add_validity(const Tensor& valid);
  ArrowArray* child(std::size_t i) { return &holder_->children[i]; }
  /// Moves the array to `out`.
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

/// Initialises `out` with the type of `schema`: a struct of its columns, with nested structs for
/// records. Throws Error(unsupported), naming the column, for a dtype that Arrow lacks, a shape
/// with a dimension above 2^31 - 1, or a name with a null character.
void export_arrow_schema(const Schema& schema, ArrowSchema* out);

/// Initialises `out` with an array of these rows of `column`.
void export_arrow_column(const Column& column, const ExportedRows& rows, ArrowArray* out);

/// A field of a struct: a column, or a record with fields.
struct ArrowField {
  std::string name;
  const Column* column = nullptr;  ///< null for a record
  std::size_t index = 0;           ///< index of the column
  std::vector<ArrowField> fields;
};

/// The columns of `schema` as nested fields, which point to the columns in `schema`. A record is at
/// the position of its first column.
std::vector<ArrowField> arrow_fields(const Schema& schema);

}  // namespace tenfold
