#include "ingest/arrow/export.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"

namespace tenfold {
namespace {

constexpr std::int64_t kNullable = 2;

/// Arrow's format letter for a dtype, or null.
const char* letter_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::bool_:
      return "b";
    case DType::uint8:
      return "C";
    case DType::uint16:
      return "S";
    case DType::uint32:
      return "I";
    case DType::uint64:
      return "L";
    case DType::int8:
      return "c";
    case DType::int16:
      return "s";
    case DType::int32:
      return "i";
    case DType::int64:
      return "l";
    case DType::float16:
      return "e";
    case DType::float32:
      return "f";
    case DType::float64:
      return "g";
    default:
      return nullptr;
  }
}

struct SchemaHolder {
  std::string format;
  std::string name;
  std::string metadata;
  std::vector<ArrowSchema> children;
  std::vector<ArrowSchema*> child_pointers;

  ~SchemaHolder() {
    for (ArrowSchema& child : children) {
      if (child.release != nullptr) child.release(&child);
    }
  }
};

void release_schema(ArrowSchema* schema) {
  delete static_cast<SchemaHolder*>(schema->private_data);
  schema->release = nullptr;
}

/// Initialises `out` with these properties. `fill(i, child)` initialises child `i`.
template <class Fill>
void make_schema(ArrowSchema* out, std::string format, std::string name, std::int64_t flags,
                 std::string metadata, std::size_t num_children, const Fill& fill) {
  auto holder = std::make_unique<SchemaHolder>();
  holder->format = std::move(format);
  holder->name = std::move(name);
  holder->metadata = std::move(metadata);
  holder->children.resize(num_children, ArrowSchema{});
  for (ArrowSchema& child : holder->children) holder->child_pointers.push_back(&child);
  for (std::size_t i = 0; i < num_children; ++i) fill(i, &holder->children[i]);
  *out = ArrowSchema{};
  out->format = holder->format.c_str();
  out->name = holder->name.c_str();
  out->metadata = holder->metadata.empty() ? nullptr : holder->metadata.data();
  out->flags = flags;
  out->n_children = static_cast<std::int64_t>(num_children);
  out->children = holder->child_pointers.data();
  out->release = release_schema;
  out->private_data = holder.release();
}

/// One key-value pair in Arrow's encoding of metadata: counts and lengths are native int32.
std::string metadata_of(std::string_view key, std::string_view value) {
  std::string encoded;
  const auto add_count = [&](std::size_t count) {
    const auto value32 = static_cast<std::int32_t>(count);
    encoded.append(reinterpret_cast<const char*>(&value32), sizeof(value32));
  };
  add_count(1);
  for (const std::string_view text : {key, value}) {
    add_count(text.size());
    encoded.append(text);
  }
  return encoded;
}

/// Initialises `out` with the type of an element at dimension `dim` of a row's shape: a fixed-size
/// list, or beyond the last dimension a number, string or bytes.
void element_schema(const Column& column, std::size_t dim, std::string name, std::int64_t flags,
                    std::string metadata, ArrowSchema* out) {
  if (dim < column.shape.size()) {
    make_schema(out, "+w:" + std::to_string(column.shape[dim]), std::move(name), flags,
                std::move(metadata), 1, [&](std::size_t, ArrowSchema* child) {
                  element_schema(column, dim + 1, "item", 0, "", child);
                });
    return;
  }
  std::string format = column.kind == ColumnKind::string  ? "U"
                       : column.kind == ColumnKind::bytes ? "Z"
                                                          : letter_of(column.dtype);
  make_schema(out, std::move(format), std::move(name), flags, std::move(metadata), 0,
              [](std::size_t, ArrowSchema*) {});
}

void field_schema(const ArrowField& field, ArrowSchema* out) {
  if (field.name.find('\0') != std::string::npos) {
    throw base::unsupported()
        .part("data set: column ", base::quote(field.name))
        .problem("names in Arrow's C interface end at a null character")
        .expected("a name without one")
        .found(base::quote(field.name))
        .remedy("rename() the column");
  }
  if (field.column == nullptr) {
    make_schema(out, "+s", field.name, 0, "", field.fields.size(),
                [&](std::size_t i, ArrowSchema* child) { field_schema(field.fields[i], child); });
    return;
  }
  const Column& column = *field.column;
  if (!column.is_text() && letter_of(column.dtype) == nullptr) {
    throw base::unsupported()
        .part("data set: column ", base::quote(column.name()))
        .problem("Arrow has no such type")
        .expected("integers, float16, float32, float64, bool or text")
        .found(column.dtype_name())
        .remedy("select() other columns");
  }
  constexpr std::int64_t kMaxListLength = std::numeric_limits<std::int32_t>::max();
  for (const std::int64_t length : column.shape) {
    if (length <= kMaxListLength) continue;
    throw base::unsupported()
        .part("data set: column ", base::quote(column.name()))
        .problem("Arrow has no such type")
        .expected("lists of at most ", kMaxListLength, " elements in a row")
        .found(length)
        .remedy("select() other columns");
  }
  const std::int64_t flags = column.nullable ? kNullable : 0;
  std::string metadata = column.unit.empty() ? "" : metadata_of("unit", column.unit);
  if (!column.ragged) {
    element_schema(column, 0, field.name, flags, std::move(metadata), out);
    return;
  }
  make_schema(
      out, "+L", field.name, flags, std::move(metadata), 1,
      [&](std::size_t, ArrowSchema* child) { element_schema(column, 0, "item", 0, "", child); });
}

std::vector<std::uint8_t> bits_of(const std::byte* bools, std::size_t count) {
  std::vector<std::uint8_t> bits((count + 7) / 8);
  for (std::size_t i = 0; i < count; ++i) {
    if (bools[i] != std::byte{0}) bits[i / 8] |= static_cast<std::uint8_t>(1U << (i % 8));
  }
  return bits;
}

/// Initialises `out` with an array of `length` elements at dimension `dim` of a row's shape.
/// `valid` applies to the outermost level.
void element_array(const Column& column, const Tensor& values, std::int64_t length, std::size_t dim,
                   const Tensor& valid, ArrowArray* out) {
  const bool is_list = dim < column.shape.size();
  ArrowArrayMaker maker(length, is_list ? 1 : 0);
  maker.add_validity(valid);
  if (is_list) {
    element_array(column, values, length * column.shape[dim], dim + 1, {}, maker.child(0));
  } else if (values.numel() == 0) {
    maker.add(std::vector<std::uint8_t>(8));
  } else if (values.dtype() == DType::bool_) {
    maker.add(bits_of(values.raw_data(), static_cast<std::size_t>(length)));
  } else {
    maker.add(values.raw_data(), values.buffer());
  }
  maker.move_to(out);
}

void text_array(const Tensor& bytes, std::vector<std::int64_t> offsets, const Tensor& valid,
                ArrowArray* out) {
  ArrowArrayMaker maker(static_cast<std::int64_t>(offsets.size()) - 1, 0);
  maker.add_validity(valid);
  maker.add(std::move(offsets));
  if (bytes.numel() == 0) {
    maker.add(std::vector<std::uint8_t>(8));
  } else {
    maker.add(bytes.raw_data(), bytes.buffer());
  }
  maker.move_to(out);
}

}  // namespace

ArrowArrayMaker::ArrowArrayMaker(std::int64_t length, std::size_t num_children)
    : holder_(std::make_unique<Holder>()), length_(length) {
  holder_->children.resize(num_children, ArrowArray{});
  for (ArrowArray& child : holder_->children) holder_->child_pointers.push_back(&child);
}

ArrowArrayMaker::Holder::~Holder() {
  for (ArrowArray& child : children) {
    if (child.release != nullptr) child.release(&child);
  }
}

void ArrowArrayMaker::add(const void* data, Buffer owner) {
  holder_->buffers.push_back(data);
  holder_->owners.push_back(std::move(owner));
}

void ArrowArrayMaker::add(std::vector<std::int64_t> offsets) {
  holder_->buffers.push_back(offsets.data());
  holder_->offsets.push_back(std::move(offsets));
}

void ArrowArrayMaker::add(std::vector<std::uint8_t> bits) {
  holder_->buffers.push_back(bits.data());
  holder_->bits.push_back(std::move(bits));
}

void ArrowArrayMaker::add_validity(const Tensor& valid) {
  const auto count = static_cast<std::size_t>(valid.numel());
  const std::span<const std::byte> bools(count == 0 ? nullptr : valid.raw_data(), count);
  null_count_ = std::ranges::count(bools, std::byte{0});
  if (null_count_ == 0) {
    add_null();
  } else {
    add(bits_of(bools.data(), count));
  }
}

void ArrowArrayMaker::release(ArrowArray* array) {
  delete static_cast<Holder*>(array->private_data);
  array->release = nullptr;
}

void ArrowArrayMaker::move_to(ArrowArray* out) {
  *out = ArrowArray{};
  out->length = length_;
  out->null_count = null_count_;
  out->n_buffers = static_cast<std::int64_t>(holder_->buffers.size());
  out->buffers = holder_->buffers.data();
  out->n_children = static_cast<std::int64_t>(holder_->children.size());
  out->children = holder_->child_pointers.data();
  out->release = release;
  out->private_data = holder_.release();
}

std::vector<ArrowField> arrow_fields(const Schema& schema) {
  std::vector<ArrowField> fields;
  for (std::size_t i = 0; i < schema.size(); ++i) {
    const Column& column = schema.columns()[i];
    std::vector<ArrowField>* level = &fields;
    for (std::size_t depth = 0; depth + 1 < column.path.size(); ++depth) {
      const std::string& name = column.path[depth];
      auto found = std::ranges::find_if(*level, [&](const ArrowField& field) {
        return field.column == nullptr && field.name == name;
      });
      if (found == level->end())
        found = level->insert(level->end(), ArrowField{name, nullptr, 0, {}});
      level = &found->fields;
    }
    level->push_back({column.path.back(), &column, i, {}});
  }
  return fields;
}

void export_arrow_schema(const Schema& schema, ArrowSchema* out) {
  const ArrowField root{"", nullptr, 0, arrow_fields(schema)};
  field_schema(root, out);
}

void export_arrow_column(const Column& column, const ExportedRows& rows, ArrowArray* out) {
  if (!column.has_ends()) {
    element_array(column, rows.values, rows.size, 0, rows.valid, out);
    return;
  }
  if (!column.ragged) {
    text_array(rows.values, rows.offsets, rows.valid, out);
    return;
  }
  ArrowArrayMaker maker(rows.size, 1);
  maker.add_validity(rows.valid);
  maker.add(std::vector<std::int64_t>(rows.offsets));
  if (column.is_text()) {
    text_array(rows.values, rows.item_offsets, {}, maker.child(0));
  } else {
    element_array(column, rows.values, rows.offsets.back(), 0, {}, maker.child(0));
  }
  maker.move_to(out);
}

}  // namespace tenfold
