#pragma once

#include <string_view>

#include "base/fail.hpp"
#include "codecs/json/json.hpp"

namespace tenfold::codecs {

/// Parses the subset of YAML 1.1 that PyYAML's `yaml.dump` writes by default for dicts, lists, str,
/// int, float, bool and None without shared containers. The subset has block collections, flow
/// collections on one line, and plain or quoted scalars of any number of lines. Lines end with LF,
/// CR LF or CR. Reports the content to `handler` as parse_json() does. Refuses aliases, with which
/// a small document could expand to a large one. Also refuses anchors, tags, block scalars,
/// directives, comments, the line breaks U+0085, U+2028 and U+2029, escaped surrogates, duplicate
/// keys and more than about 100 levels. Throws Error(corrupt) "<where>: <what>: expected ..., found
/// ... at line N".
void parse_yaml(std::string_view text, const base::Where& where, JsonHandler& handler);

}  // namespace tenfold::codecs
