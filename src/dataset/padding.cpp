#include "dataset/padding.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <variant>

#include <tenfold/dtype.hpp>
#include <tenfold/value.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/cast.hpp"
#include "dataset/compatible_columns.hpp"
#include "dataset/leaf_names.hpp"

namespace tenfold {

bool is_padded(const Column& column, const BatchOptions& options) {
  return column.ragged && !column.is_text() &&
         (options.pad_all || options.pad.contains(column.name()));
}

void check_pads(const Schema& schema, const BatchOptions& options) {
  for (const auto& [name, value] : options.pad) {
    std::string known;
    std::string found = "no such column";
    bool is_ragged = false;
    for (const Column& column : schema.columns()) {
      const bool is_named = column.name() == name;
      if (is_named) found = describe(column);
      if (!column.ragged || column.is_text()) continue;
      is_ragged |= is_named;
      known += (known.empty() ? "" : ", ") + base::quote(column.name());
    }
    if (is_ragged) continue;
    throw base::key_not_found()
        .part("pad: column ", base::quote(name))
        .expected("one of the ragged columns of numbers (", known.empty() ? "none" : known, ")")
        .found(found);
  }
}

Padding::Padding(const Column& column, const PadValue& value) : element_(itemsize(column.dtype)) {
  const bool is_held = std::visit(
      [&](auto number) {
        const DType from = dtype_of<decltype(number)>();
        if (!can_cast(from, column.dtype)) return false;
        const auto* bytes = reinterpret_cast<const std::byte*>(&number);
        cast_elements(from, bytes, column.dtype, element_.data(), 1);
        const bool rounds = is_floating_point(column.dtype) || is_complex(column.dtype);
        return rounds || first_not_fitting(from, bytes, column.dtype, 1) == 1;
      },
      value);
  if (is_held) return;
  throw base::invalid_argument()
      .part("pad: column ", base::quote(column.name()))
      .expected("a value that ", column.dtype_name(), " can represent")
      .found(std::visit([](auto number) { return to_json(Value(number)); }, value));
}

void Padding::fill(std::span<std::byte> into) const {
  if (into.empty()) return;
  const bool is_uniform =
      std::ranges::all_of(element_, [&](std::byte byte) { return byte == element_.front(); });
  if (is_uniform) {
    std::memset(into.data(), std::to_integer<int>(element_.front()), into.size());
    return;
  }
  for (std::size_t done = 0; done < into.size(); done += element_.size()) {
    std::memcpy(into.data() + done, element_.data(), element_.size());
  }
}

void refuse_length_names(const Schema& schema, const BatchOptions& options) {
  if (options.pad.empty() && !options.pad_all) return;
  const std::set<std::string> names = names_of(schema.columns());
  for (const Column& column : schema.columns()) {
    const std::string length = column.name() + ".length";
    if (!is_padded(column, options) || !names.contains(length)) continue;
    throw base::invalid_argument()
        .part("pad: column ", base::quote(column.name()))
        .problem("the lengths of its rows are named ", base::quote(length), " in batches")
        .expected("no other column of that name")
        .found("one")
        .remedy("rename ", base::quote(length), ", or select columns without it");
  }
}

}  // namespace tenfold
