#pragma once

#include <string_view>

#include "base/fail.hpp"
#include "codecs/json/json.hpp"

namespace tenfold::codecs {

/// Parses the part of YAML 1.1 that PyYAML's `yaml.dump` makes of dicts, lists, str, int, float,
/// bool and None: block collections, flow collections on one line, plain and quoted scalars over
/// any number of lines. Hands them on as parse_json() does. Anchors, aliases, tags, block scalars,
/// directives and comments are refused, so that no document is larger than it looks. Throws
/// Error(corrupt) "<where>: <what>: expected ..., found ... at line N".
void parse_yaml(std::string_view text, const base::Where& where, JsonHandler& handler);

}  // namespace tenfold::codecs
