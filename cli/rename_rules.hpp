#pragma once

#include <string>
#include <vector>

#include <tenfold/io.hpp>

namespace tenfold::cli {

/// Rules of `--rename A=B`, each of which renames A and everything below it to B. "model=" removes
/// the level "model", and "=model" adds that level above everything. Each rule applies to the names
/// that the rules before it produced.
class RenameRules {
 public:
  /// Throws Error(invalid_argument) for the rule "=" and for a rule without "=".
  explicit RenameRules(const std::vector<std::string>& rules);

  bool empty() const noexcept { return rules_.empty(); }
  std::string apply(const std::string& name) const;
  /// Throws Error(key_not_found) for a rule that applies to none of `names`, after the earlier
  /// rules have renamed them.
  void require_each_applies(std::vector<std::string> names) const;

 private:
  struct Rule {
    std::string from;
    std::string to;
  };
  static bool applies(const Rule& rule, const std::string& name);
  static std::string apply(const Rule& rule, const std::string& name);

  std::vector<Rule> rules_;
};

}  // namespace tenfold::cli
