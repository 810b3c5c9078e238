#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/value.hpp>

namespace tenfold::cli {

/// Formats one strict JSON document (RFC 8259). NaN becomes null, infinities become "inf" and
/// "-inf". C0 and C1 control characters are escaped, because a terminal may interpret them. A byte
/// that is not UTF-8 becomes the escape of a lone surrogate, such as "\udcff" for 0xff. In Python,
/// os.fsencode() recovers the byte from the parsed string.
std::string strict_json(const Value& value);

/// Adds ".0" to the text of a finite float if readers would otherwise parse it as an integer: "1"
/// becomes "1.0".
std::string json_float(std::string text);

/// Any unsigned number as a JSON integer.
Value json_number(std::uint64_t number);

Value json_list(const std::vector<std::string>& strings);

}  // namespace tenfold::cli
