#include "rename_rules.hpp"

#include <tenfold/error.hpp>

#include <algorithm>

namespace tenfold::cli {

RenameRules::RenameRules(const std::vector<std::string>& rules) {
  for (const std::string& rule : rules) {
    const std::size_t equals = rule.find('=');
    if (equals == std::string::npos || rule == "=") {
      throw Error(ErrorCode::invalid_argument)
          .part("--rename")
          .expected("OLD=NEW")
          .found("\"", rule, "\"");
    }
    rules_.push_back({rule.substr(0, equals), rule.substr(equals + 1)});
  }
}

bool RenameRules::applies(const Rule& rule, const std::string& name) {
  return rule.from.empty() || name == rule.from || name.starts_with(rule.from + ".");
}

std::string RenameRules::apply(const Rule& rule, const std::string& name) {
  if (!applies(rule, name)) return name;
  if (rule.from.empty()) return rule.to + "." + name;
  std::string rest = name.substr(rule.from.size());
  if (rule.to.empty() && !rest.empty()) rest.erase(0, 1);  // the dot
  return rule.to + rest;
}

std::string RenameRules::apply(const std::string& name) const {
  std::string renamed = name;
  for (const Rule& rule : rules_) renamed = apply(rule, renamed);
  return renamed;
}

void RenameRules::require_each_applies(std::vector<std::string> names) const {
  for (const Rule& rule : rules_) {
    const bool any = std::any_of(names.begin(), names.end(),
                                 [&](const std::string& name) { return applies(rule, name); });
    if (!any) {
      throw Error(ErrorCode::key_not_found)
          .part("--rename")
          .problem("nothing is called \"", rule.from, "\"");
    }
    for (std::string& name : names) name = apply(rule, name);
  }
}

}  // namespace tenfold::cli
