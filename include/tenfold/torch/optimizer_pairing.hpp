#pragma once

/// Pairs the parameters of an optimizer with those of a saved state. Part of tenfold/torch.hpp.

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <tenfold/io.hpp>
#include <tenfold/torch/optimizer_source.hpp>

namespace tenfold::torch_detail {

/// The names of the parameters of each group.
using GroupNames = std::vector<std::vector<std::string>>;

/// Groups and parameters of a saved state, paired with those of the target. Each member has one
/// element per group of the target.
struct OptimizerPairing {
  std::vector<std::optional<std::size_t>> groups;  // the paired group of the source
  // For each parameter, the number of the paired parameter of the source, which is the key of its
  // state; "" if there is none. If groups are paired by order, a group without a counterpart has an
  // empty list.
  GroupNames numbers;
};

inline std::string count_text(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " parameter" : " parameters");
}

/// Returns a text for messages: "2 groups of 3, 1 parameters".
inline std::string groups_text(const std::vector<std::size_t>& counts) {
  std::string text =
      std::to_string(counts.size()) + (counts.size() == 1 ? " group of " : " groups of ");
  for (std::size_t i = 0; i < counts.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(counts[i]);
  }
  return text + " parameters";
}

/// Pairs by order, as tenfold's Python package does for parameters without names.
inline OptimizerPairing pair_by_order(const std::vector<std::size_t>& expected,
                                      const std::vector<SourceGroup>& sources, LoadReport& report) {
  OptimizerPairing pairing;
  pairing.groups.resize(expected.size());
  pairing.numbers.resize(expected.size());
  std::vector<std::size_t> found;
  for (const SourceGroup& source : sources) found.push_back(source.numbers.size());
  if (expected.size() != found.size()) {
    report.mismatched.push_back({"param_groups", groups_text(expected), groups_text(found)});
  }
  for (std::size_t g = 0; g < std::min(expected.size(), found.size()); ++g) {
    if (expected[g] == found[g]) {
      pairing.groups[g] = g;
      pairing.numbers[g] = sources[g].numbers;
    } else if (expected.size() == found.size()) {
      report.mismatched.push_back({"param_groups." + std::to_string(g) + ".params",
                                   count_text(expected[g]), count_text(found[g])});
    }
  }
  return pairing;
}

/// True if there are no duplicate names.
inline bool are_unique(const GroupNames& names) {
  std::unordered_set<std::string> seen;
  for (const auto& group : names) {
    for (const std::string& name : group) {
      if (!seen.insert(name).second) return false;
    }
  }
  return true;
}

/// Pairs by name, as tenfold's Python package does. A parameter gets the state of the same name
/// from any group. A group gets the options of the saved group with the same parameters, not
/// counting parameters that only one side has; without such a group, it keeps its own options. An
/// empty group gets the options of the saved group at its position.
inline OptimizerPairing pair_by_name(const GroupNames& targets,
                                     const std::vector<SourceGroup>& sources,
                                     const GroupNames& source_names, LoadReport& report) {
  struct Place {
    std::size_t group;
    std::string number;
  };
  std::unordered_map<std::string, Place> places;
  for (std::size_t g = 0; g < sources.size(); ++g) {
    for (std::size_t i = 0; i < source_names[g].size(); ++i) {
      places.emplace(source_names[g][i], Place{g, sources[g].numbers[i]});
    }
  }
  std::unordered_set<std::string> wanted;
  for (const auto& names : targets) wanted.insert(names.begin(), names.end());
  for (const auto& names : source_names) {
    for (const std::string& name : names) {
      if (!wanted.contains(name)) report.unexpected.push_back(name);
    }
  }
  OptimizerPairing pairing;
  pairing.groups.resize(targets.size());
  for (std::size_t g = 0; g < targets.size(); ++g) {
    std::vector<std::string>& numbers = pairing.numbers.emplace_back();
    std::vector<std::string> expected;
    std::vector<std::size_t> num_matches(sources.size(), 0);
    for (const std::string& name : targets[g]) {
      const auto place = places.find(name);
      if (place == places.end()) report.missing.push_back(name);
      numbers.push_back(place == places.end() ? "" : place->second.number);
      if (place == places.end()) continue;
      expected.push_back(name);
      ++num_matches[place->second.group];
    }
    if (targets[g].empty() && g < sources.size()) pairing.groups[g] = g;
    if (expected.empty()) continue;
    // If several groups have the most matches, prefer the one at the same position.
    auto best = static_cast<std::size_t>(std::max_element(num_matches.begin(), num_matches.end()) -
                                         num_matches.begin());
    if (g < num_matches.size() && num_matches[g] == num_matches[best]) best = g;
    std::vector<std::string> found;
    for (const std::string& name : source_names[best]) {
      if (wanted.contains(name)) found.push_back(name);
    }
    if (std::unordered_set<std::string>(expected.begin(), expected.end()) !=
        std::unordered_set<std::string>(found.begin(), found.end())) {
      report.ignored.push_back("param_groups." + std::to_string(g));
    } else {
      pairing.groups[g] = best;
    }
  }
  return pairing;
}

/// The "param_names" of each group of a saved state, renamed; nullopt if a group has none. Throws
/// Error(invalid_argument) unless they are one string for each parameter, and Error(key_not_found)
/// for a name in `options.renamed` that no parameter has.
inline std::optional<GroupNames> names_in(const TensorDict& source,
                                          const std::vector<SourceGroup>& groups,
                                          const LoadIntoOptions& options) {
  GroupNames names;
  std::unordered_set<std::string> known;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (!groups[g].options.contains("param_names")) return std::nullopt;
    const TensorDict list = part_of_source(source, groups[g].options, "param_names",
                                           "param_groups." + std::to_string(g) + ".param_names");
    std::vector<std::string>& of_group = names.emplace_back();
    for (const std::string& position : list.keys()) {
      const TensorDict::Item item = list.get(position);
      const auto* json = std::get_if<NonTensor>(&item);
      const auto* text = json == nullptr ? nullptr : json->value.get_if<std::string>();
      if (text == nullptr) break;
      known.insert(*text);
      of_group.push_back(options.rename ? options.rename(*text) : *text);
    }
    if (of_group.size() == groups[g].numbers.size() && list.size() == of_group.size()) continue;
    throw refuse_source(source)
        .part("param_groups.", g, ".param_names")
        .problem("not a valid optimizer state")
        .expected(groups[g].numbers.size(), " names")
        .found(list.size(), list.size() == of_group.size() ? " names" : " items, not all strings");
  }
  for (const std::string& name : options.renamed) {
    if (known.contains(name)) continue;
    throw Error(ErrorCode::key_not_found)
        .path(source.where())
        .part("rename")
        .problem("no parameter \"", name, "\"");
  }
  return names;
}

/// The names that an optimizer's parameters have in a module, whose tensors are `named`. Throws
/// Error(invalid_argument) for a parameter that is not in the module.
template <class Optimizer, class NamedTensors>
GroupNames names_of(Optimizer& optimizer, const NamedTensors& named) {
  std::unordered_map<const void*, std::string> known;
  for (const auto& item : named) known.emplace(item.tensor.unsafeGetTensorImpl(), item.name);
  GroupNames names;
  for (auto& group : optimizer.param_groups()) {
    std::vector<std::string>& of_group = names.emplace_back();
    for (const auto& param : group.params()) {
      const auto found = known.find(param.unsafeGetTensorImpl());
      if (found == known.end()) {
        throw Error(ErrorCode::invalid_argument)
            .part("optimizer: param_groups.", names.size() - 1, ".params.", of_group.size())
            .problem("it has no name")
            .expected("a parameter of the module")
            .found("another tensor");
      }
      of_group.push_back(found->second);
    }
  }
  return names;
}

}  // namespace tenfold::torch_detail
