#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/value.hpp>

namespace tenfold::cli {

/// Formats one strict JSON document (RFC 8259): NaN is null, infinities are "inf" and "-inf". A
/// byte that is not UTF-8 becomes the escape of a lone surrogate, 0xff "\udcff"; os.fsencode() in
/// Python recovers it.
std::string strict_json(const Value& value);

/// Completes the text of a finite float so that readers parse it as a float, not an integer: "1" ->
/// "1.0".
std::string json_float(std::string text);

/// Any unsigned number as a JSON integer.
Value json_number(std::uint64_t number);

Value json_list(const std::vector<std::string>& strings);

}  // namespace tenfold::cli
