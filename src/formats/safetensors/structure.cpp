#include "formats/safetensors/structure.hpp"
#include "core/tree/node.hpp"

#include <utility>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "codecs/json/json.hpp"
#include "core/notes/notes.hpp"
#include "core/value/value_json.hpp"

namespace tenfold::detail::formats::safetensors {
namespace {

constexpr std::int64_t kVersion = 1;

/// What the next value of the document is.
enum class Target : std::uint8_t {
  document,
  version,
  root,
  batch_size,
  names,
  stack_dim,
  class_name,
  device,
  lazy_stack,
  lazy_stack_dim,
  lazy_stack_name,
  keys,
  entry,
  tensor,
  unbatched,
  non_tensor,
  non_tensor_stack_dim,
  td,
  length,  ///< an item of batch_size
  name,    ///< an item of names
  skip,
};

std::string_view member_of(Target target) noexcept {
  switch (target) {
    case Target::document:
      return "the document";
    case Target::version:
      return "\"version\"";
    case Target::root:
      return "\"root\"";
    case Target::batch_size:
      return "\"batch_size\"";
    case Target::names:
      return "\"names\"";
    case Target::stack_dim:
    case Target::lazy_stack_dim:
    case Target::non_tensor_stack_dim:
      return "\"stack_dim\"";
    case Target::class_name:
      return "\"class\"";
    case Target::device:
      return "\"device\"";
    case Target::lazy_stack:
      return "\"lazy_stack\"";
    case Target::lazy_stack_name:
      return "\"name\"";
    case Target::keys:
      return "\"keys\"";
    case Target::entry:
      return "an entry";
    case Target::tensor:
      return "\"tensor\"";
    case Target::unbatched:
      return "\"unbatched\"";
    case Target::non_tensor:
      return "\"non_tensor\"";
    case Target::td:
      return "\"td\"";
    case Target::length:
      return "an item of \"batch_size\"";
    case Target::name:
      return "an item of \"names\"";
    case Target::skip:
      break;
  }
  return "a member";
}

std::string_view type_of(Target target) noexcept {
  switch (target) {
    case Target::stack_dim:
    case Target::lazy_stack_dim:
    case Target::non_tensor_stack_dim:
      return "an integer from 0 to 63";
    case Target::version:
    case Target::length:
      return "an integer from 0";
    case Target::batch_size:
    case Target::names:
      return "an array";
    case Target::class_name:
    case Target::device:
    case Target::tensor:
      return "a string";
    case Target::lazy_stack_name:
    case Target::name:
      return "a string or null";
    case Target::unbatched:
      return "a boolean";
    default:
      return "an object";
  }
}

class StructureHandler final : public codecs::JsonHandler {
 public:
  explicit StructureHandler(const std::string& where) : where_(where), builder_(where_) {}

  std::unique_ptr<StructureLevel> take() {
    if (!root_) fail("\"root\" is missing", "an object", "none");
    if (!has_version_) fail("\"version\" is missing", "1", "none");
    return std::move(root_);
  }

  void null() override {
    if (build([&] { builder_.null(); }) || skipped()) return;
    switch (target_) {
      case Target::names:
      case Target::stack_dim:
      case Target::class_name:
      case Target::lazy_stack_name:
        return;
      case Target::name:
        level().names.emplace_back(std::nullopt);
        return;
      default:
        wrong_type("null");
    }
  }
  void boolean(bool value) override {
    if (build([&] { builder_.boolean(value); }) || skipped()) return;
    if (target_ != Target::unbatched) wrong_type(value ? "true" : "false");
    entry().unbatched = value;
  }
  void integer(std::int64_t value) override {
    if (build([&] { builder_.integer(value); }) || skipped()) return;
    set_integer(value);
  }
  void big_integer(std::string_view digits) override {
    if (build([&] { builder_.big_integer(digits); }) || skipped()) return;
    wrong_type(digits);
  }
  void number(double value) override {
    if (build([&] { builder_.number(value); }) || skipped()) return;
    wrong_type("a number with a fraction");
  }
  void string(std::string_view value) override {
    if (build([&] { builder_.string(value); }) || skipped()) return;
    switch (target_) {
      case Target::class_name:
        level().class_name = value;
        return;
      case Target::device:
        level().device = value;
        return;
      case Target::lazy_stack_name:
        level().lazy_stack_name = std::string(value);
        return;
      case Target::name:
        level().names.emplace_back(std::string(value));
        return;
      case Target::tensor:
        set_what(std::string(value));
        return;
      default:
        wrong_type("a string");
    }
  }
  void begin_object() override {
    if (build([&] { builder_.begin_object(); }) || enter_skipped()) return;
    switch (target_) {
      case Target::document:
      case Target::lazy_stack:
      case Target::keys:
        if (target_ == Target::keys) {
          if (level().has_keys) fail("\"keys\" is there twice", "it once", "two");
          level().has_keys = true;
        }
        if (target_ == Target::lazy_stack) level().is_lazy_stack = true;
        containers_.push_back(target_);
        return;
      case Target::root:
        root_ = std::make_unique<StructureLevel>();
        begin_level(*root_);
        return;
      case Target::entry:
        level().entries.push_back({std::move(key_), {}, false, {}});
        containers_.push_back(target_);
        return;
      case Target::td: {
        auto next = std::make_unique<StructureLevel>();
        StructureLevel& inner = *next;
        set_what(std::move(next));
        begin_level(inner);
        return;
      }
      default:
        wrong_type("an object");
    }
  }
  void key(std::string_view value) override {
    if (build([&] { builder_.key(value); }) || skip_depth_ > 0) return;
    switch (containers_.back()) {
      case Target::document:
        target_ = value == "version" ? Target::version
                  : value == "root"  ? Target::root
                                     : Target::skip;
        if (target_ == Target::root && root_) fail("\"root\" is there twice", "it once", "two");
        return;
      case Target::td:
        target_ = level_member(value);
        return;
      case Target::keys:
        key_ = value;
        target_ = Target::entry;
        return;
      case Target::entry:
        target_ = entry_member(value);
        return;
      default:
        target_ = value == "stack_dim" ? Target::lazy_stack_dim
                  : value == "name"    ? Target::lazy_stack_name
                                       : Target::skip;
    }
  }
  void end_object() override {
    if (build([&] { builder_.end_object(); }) || leave_skipped()) return;
    if (containers_.back() == Target::entry) end_entry();
    if (containers_.back() == Target::td) end_level();
    containers_.pop_back();
  }
  void begin_array() override {
    if (build([&] { builder_.begin_array(); }) || enter_skipped()) return;
    if (target_ == Target::batch_size) {
      if (level().has_batch_size) fail("\"batch_size\" is there twice", "it once", "two");
      level().has_batch_size = true;
      target_ = Target::length;
    } else if (target_ == Target::names) {
      level().names.clear();
      target_ = Target::name;
    } else {
      wrong_type("an array");
    }
  }
  void end_array() override {
    if (build([&] { builder_.end_array(); })) return;
    leave_skipped();
  }

 private:
  StructureLevel& level() { return *levels_.back(); }
  StructureLevel::Entry& entry() { return level().entries.back(); }

  /// Hands the event to the JSON value that is being read; false if there is none.
  template <class Event>
  bool build(const Event& event) {
    if (target_ != Target::non_tensor) return false;
    event();
    if (builder_.done()) {
      set_what(NonTensor{builder_.take()});
      target_ = Target::skip;
    }
    return true;
  }

  bool skipped() const { return target_ == Target::skip; }
  bool enter_skipped() {
    if (target_ != Target::skip) return false;
    ++skip_depth_;
    return true;
  }
  bool leave_skipped() {
    if (skip_depth_ == 0) return false;
    --skip_depth_;
    return true;
  }

  void begin_level(StructureLevel& next) {
    levels_.push_back(&next);
    containers_.push_back(Target::td);
  }

  static Target level_member(std::string_view key) {
    if (key == "keys") return Target::keys;
    if (key == "batch_size") return Target::batch_size;
    if (key == "names") return Target::names;
    if (key == "stack_dim") return Target::stack_dim;
    if (key == "class") return Target::class_name;
    if (key == "device") return Target::device;
    if (key == "lazy_stack") return Target::lazy_stack;
    return Target::skip;
  }

  static Target entry_member(std::string_view key) {
    if (key == "tensor") return Target::tensor;
    if (key == "td") return Target::td;
    if (key == "non_tensor") return Target::non_tensor;
    if (key == "unbatched") return Target::unbatched;
    if (key == "stack_dim") return Target::non_tensor_stack_dim;
    return Target::skip;
  }

  void set_integer(std::int64_t value) {
    if (target_ == Target::version) {
      if (value != kVersion) {
        throw Error(ErrorCode::unsupported, where_ + ": unknown version: expected " +
                                                std::to_string(kVersion) + ", found " +
                                                std::to_string(value));
      }
      has_version_ = true;
      return;
    }
    const bool is_stack_dim = target_ == Target::stack_dim || target_ == Target::lazy_stack_dim ||
                              target_ == Target::non_tensor_stack_dim;
    if (value < 0 || (is_stack_dim && value > kMaxStackDim)) wrong_type(std::to_string(value));
    switch (target_) {
      case Target::length:
        level().batch_size.push_back(value);
        return;
      case Target::stack_dim:
        level().stack_dim = value;
        return;
      case Target::lazy_stack_dim:
        level().lazy_stack_dim = value;
        return;
      case Target::non_tensor_stack_dim:
        entry().stack_dim = value;
        return;
      default:
        wrong_type("an integer");
    }
  }

  template <class What>
  void set_what(What what) {
    if (!std::holds_alternative<std::monostate>(entry().what)) {
      fail("says two things", "one of \"tensor\", \"non_tensor\" and \"td\"", "two");
    }
    entry().what = std::move(what);
  }

  void end_entry() {
    if (std::holds_alternative<std::monostate>(entry().what)) {
      fail("says nothing", "one of \"tensor\", \"non_tensor\" and \"td\"", "none");
    }
    if (auto* value = std::get_if<NonTensor>(&entry().what); value && entry().stack_dim) {
      value->is_stack = true;
      value->stack_dim = *entry().stack_dim;
    }
  }

  void end_level() {
    if (!level().has_batch_size) fail("\"batch_size\" is missing", "an array", "none");
    if (!level().has_keys) fail("\"keys\" is missing", "an object", "none");
    if (!level().names.empty() && level().names.size() != level().batch_size.size()) {
      fail("\"names\" does not fit",
           "one for each of the " + std::to_string(level().batch_size.size()) + " batch dimensions",
           std::to_string(level().names.size()));
    }
    if (level().stack_dim &&
        static_cast<std::uint64_t>(*level().stack_dim) >= level().batch_size.size()) {
      fail("\"stack_dim\" does not fit",
           "a dimension of batch_size " + base::list_text(level().batch_size),
           std::to_string(*level().stack_dim));
    }
    levels_.pop_back();
  }

  [[noreturn]] void wrong_type(std::string_view found) {
    fail(std::string(member_of(target_)) + " has the wrong type", type_of(target_), found);
  }

  [[noreturn]] void fail(std::string_view what, std::string_view expected, std::string_view found) {
    std::string path;
    for (std::size_t i = 0; i + 1 < levels_.size(); ++i) {
      path = note_path_child(path, levels_[i]->entries.back().key);
    }
    if (!containers_.empty() && containers_.back() == Target::entry) {
      path = note_path_child(path, entry().key);
    } else if (target_ == Target::entry) {
      path = note_path_child(path, key_);
    }
    throw Error(ErrorCode::corrupt, where_ + ": node " + base::quote(path) + ": " +
                                        std::string(what) + ": expected " + std::string(expected) +
                                        ", found " + std::string(found));
  }

  std::string where_;
  ValueBuilder builder_;
  Target target_ = Target::document;
  std::vector<Target> containers_;  ///< td stands for every level, the root too
  std::vector<StructureLevel*> levels_;
  std::unique_ptr<StructureLevel> root_;
  std::string key_;
  std::size_t skip_depth_ = 0;
  bool has_version_ = false;
};

}  // namespace

std::unique_ptr<StructureLevel> parse_structure(std::string_view text, const std::string& where) {
  StructureHandler handler(where);
  codecs::parse_json(text, where, handler);
  return handler.take();
}

}  // namespace tenfold::detail::formats::safetensors
