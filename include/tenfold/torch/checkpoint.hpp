#pragma once

/// Collects the objects of a LibTorch training as the state of a checkpoint. <tenfold/torch.hpp>
/// does not include this header.
///
///     tenfold::TrainingState training;
///     training.add("model", net).add("optimizer", optimizer).add("loader", loader).add_rng();
///     tenfold::CheckpointManager manager("run", {.max_to_keep = 3});
///     training.load(manager.restore().state);         // also of a step that Python saved
///     manager.save(500, training.state());

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/batch_loader.hpp>
#include <tenfold/checkpoint_manager.hpp>
#include <tenfold/error.hpp>
#include <tenfold/io.hpp>
#include <tenfold/tensordict.hpp>
#include <tenfold/torch.hpp>
#include <tenfold/value.hpp>

namespace tenfold {

/// The objects of a training, by name. They must outlive the TrainingState, which refers to them.
/// Adding a second object of the same name throws Error(invalid_argument). Not thread-safe.
class TrainingState {
 public:
  /// Adds a module: its parameters and buffers, by Python's names.
  template <TorchModule Module>
  TrainingState& add(const std::string& name, Module& module) {
    return add_entry(
        {name, [&module] { return TensorDict::Item(state_dict(module)); },
         [name, &module](const TensorDict::Item& saved, const LoadIntoOptions& options) {
           return load_into(module, node_in(name, saved), options);
         }});
  }
  /// Adds an optimizer: its state and the options of its groups, as in Python's state_dict().
  template <TorchOptimizer Optimizer>
  TrainingState& add(const std::string& name, Optimizer& optimizer) {
    return add_entry(
        {name, [&optimizer] { return TensorDict::Item(state_dict(optimizer)); },
         [name, &optimizer](const TensorDict::Item& saved, const LoadIntoOptions& options) {
           return load_into(optimizer, node_in(name, saved), options);
         }});
  }
  /// Adds a loader: its seed, epoch and position.
  TrainingState& add(const std::string& name, BatchLoader& loader) {
    return add_entry(
        {name,
         [&loader] {
           return TensorDict::Item(NonTensor{from_json(loader.state_dict(), "batch loader")});
         },
         [&loader](const TensorDict::Item& saved, const LoadIntoOptions& options) {
           const std::string state = to_json(value_in(saved));
           options.dry_run ? loader.check_state_dict(state) : loader.load_state_dict(state);
           return LoadReport();
         }});
  }
  /// Adds a JSON value, which load() replaces.
  TrainingState& add(const std::string& name, Value& value) {
    return add_entry({name, [&value] { return TensorDict::Item(NonTensor{value}); },
                      [&value](const TensorDict::Item& saved, const LoadIntoOptions& options) {
                        const Value& found = value_in(saved);
                        if (!options.dry_run) value = found;
                        return LoadReport();
                      }});
  }
  /// Adds torch's default CPU generator of random numbers, which load() restores last.
  /// The states of Python, NumPy and CUDA that Python's RngState saved are kept, saved again
  /// unchanged, and listed in LoadReport::ignored.
  TrainingState& add_rng(const std::string& name = "rng") {
    auto others = std::make_shared<TensorDict>(TensorDict::dict());
    Entry entry{name, [others] { return TensorDict::Item(random_state(*others)); },
                [name, others](const TensorDict::Item& saved, const LoadIntoOptions& options) {
                  return load_random_state(node_in(name, saved), *others, options.dry_run);
                }};
    entry.is_last = true;
    return add_entry(std::move(entry));
  }

  /// Returns the argument for CheckpointManager::save(). Tensors share the objects' memory where
  /// those of state_dict() do. This call copies everything else, such as step counts, options, and
  /// the state of the generator.
  TensorDict state() const {
    TensorDict tree = TensorDict::dict();
    for (const Entry& entry : entries_) tree.set(entry.name, entry.state());
    return tree;
  }

  /// Loads every entry of a restored state. All names, dtypes and shapes, and the states of loaders
  /// and of the generator, are checked first.
  /// Unless `strict` is false, throws Error(key_not_found) if entries are missing or unexpected,
  /// and Error(invalid_argument) if the tensors of an entry differ in name, dtype or shape.
  /// Whatever `strict` is, throws one of these two errors if an entry is of the wrong kind: for
  /// example tensors where a value was added, or a number where a module was added. One exception:
  /// a JSON object or array where a module was added counts as a node without tensors; if `strict`
  /// is false, LoadReport::missing lists the module's names.
  LoadReport load(const TensorDict& saved, bool strict = true) {
    LoadReport report;
    std::vector<const Entry*> found;
    for (const Entry& entry : entries_) {
      if (saved.contains(KeyPath{entry.name})) {
        found.push_back(&entry);
      } else {
        report.missing.push_back(entry.name);
      }
    }
    for (const std::string& name : saved.keys()) {
      if (!has(name)) report.unexpected.push_back(name);
    }
    if (strict && !report.ok()) throw_different(report);
    std::ranges::stable_partition(found, [](const Entry* entry) { return !entry->is_last; });
    for (const bool dry_run : {true, false}) {
      for (const Entry* entry : found) {
        LoadIntoOptions options;
        options.strict = strict;
        options.dry_run = dry_run;
        const LoadReport loaded = entry->load(saved.get(entry->name), options);
        if (!dry_run) add_report(report, entry->name, loaded);
      }
    }
    return report;
  }

 private:
  struct Entry {
    std::string name;
    std::function<TensorDict::Item()> state;
    std::function<LoadReport(const TensorDict::Item&, const LoadIntoOptions&)> load;
    bool is_last = false;
  };

  static constexpr const char* kTorchPart = "torch";  // as Python's RngState calls it

  bool has(const std::string& name) const {
    return std::ranges::any_of(entries_, [&](const Entry& entry) { return entry.name == name; });
  }

  TrainingState& add_entry(Entry entry) {
    if (has(entry.name)) {
      throw Error(ErrorCode::invalid_argument)
          .part("training state")
          .expected("each name once")
          .found("\"", entry.name, "\" again");
    }
    entries_.push_back(std::move(entry));
    return *this;
  }

  static TensorDict node_in(const std::string& name, const TensorDict::Item& item) {
    if (const auto* node = std::get_if<TensorDict>(&item)) return *node;
    TensorDict parent;
    parent.set(name, item);
    return parent[KeyPath{name}];  // a JSON object or array becomes a node; anything else throws
  }

  static const Value& value_in(const TensorDict::Item& item) {
    if (const auto* value = std::get_if<NonTensor>(&item)) return value->value;
    throw Error(ErrorCode::invalid_argument)
        .part("training state")
        .expected("a JSON value")
        .found("tensors");
  }

  static TensorDict random_state(const TensorDict& others) {
    TensorDict state = TensorDict::dict();
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    at::Tensor words;
    {
      const std::lock_guard lock(generator.mutex());
      words = generator.get_state();
    }
    others.for_each(
        [&](const std::string& key, const TensorDict::Item& item) { state.set(key, item); });
    state.set(kTorchPart, from_torch(words));
    return state;
  }

  static LoadReport load_random_state(const TensorDict& saved, TensorDict& others, bool dry_run) {
    LoadReport report;
    const at::Tensor words = to_torch(saved.at(kTorchPart)).clone();
    if (dry_run) {
      set_state(at::detail::createCPUGenerator(), words);
      return report;
    }
    // Copied into memory, because the step's files may be pruned before the next save.
    TensorDict kept = copied(saved);
    others = TensorDict::dict();
    kept.for_each([&](const std::string& key, const TensorDict::Item& item) {
      if (key == kTorchPart) return;
      others.set(key, item);
      report.ignored.push_back(key);
    });
    set_state(at::detail::getDefaultCPUGenerator(), words);
    report.loaded.emplace_back(kTorchPart);
    return report;
  }

  static void set_state(at::Generator generator, const at::Tensor& words) {
    const std::lock_guard lock(generator.mutex());
    try {
      generator.set_state(words);
    } catch (const c10::Error& error) {
      throw Error(ErrorCode::invalid_argument)
          .part("training state: ", kTorchPart)
          .problem("not a valid generator state: ", error.what_without_backtrace());
    }
  }

  static TensorDict copied(const TensorDict& node) {
    TensorDict made(node.info());
    node.for_each([&](const std::string& key, const TensorDict::Item& item) {
      if (const auto* inner = std::get_if<TensorDict>(&item)) {
        made.set(key, copied(*inner));
      } else if (const auto* leaf = std::get_if<Leaf>(&item)) {
        Buffer bytes = Buffer::allocate(static_cast<std::size_t>(leaf->nbytes()));
        leaf->read(0, bytes.mutable_bytes());
        made.set(key, Tensor(leaf->dtype(), leaf->shape(), std::move(bytes)));
      } else {
        made.set(key, item);
      }
    });
    return made;
  }

  static void add_report(LoadReport& report, const std::string& name, const LoadReport& entry) {
    const auto add = [&](std::vector<std::string>& to, const std::vector<std::string>& from) {
      for (const std::string& key : from) to.push_back(name + '.' + key);
    };
    add(report.loaded, entry.loaded);
    // The report of a value or a loader has no names: list the name of the entry.
    if (entry.ok() && entry.loaded.empty() && entry.ignored.empty()) report.loaded.push_back(name);
    add(report.missing, entry.missing);
    add(report.unexpected, entry.unexpected);
    add(report.ignored, entry.ignored);
    for (LoadReport::Mismatch mismatch : entry.mismatched) {
      mismatch.name = name + '.' + mismatch.name;
      report.mismatched.push_back(std::move(mismatch));
    }
  }

  [[noreturn]] static void throw_different(const LoadReport& report) {
    std::string text = "training state: the entries differ:";
    for (const std::string& name : report.missing) text += " \"" + name + "\" is missing;";
    for (const std::string& name : report.unexpected) text += " \"" + name + "\" is unexpected;";
    throw Error(ErrorCode::key_not_found)
        .problem(text, " to load only the entries that both states have, use strict = false");
  }

  std::vector<Entry> entries_;
};

}  // namespace tenfold
