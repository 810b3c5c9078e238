#include <algorithm>
#include <limits>
#include <utility>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/json/json.hpp"
#include "core/tree/batch.hpp"
#include "core/tree/key_index.hpp"
#include "core/tree/node.hpp"
#include "formats/folder/meta/meta.hpp"

namespace tenfold::detail::formats::folder {
namespace {

/// Collects an array of integers, or a description of the invalid value.
struct IntegerArray {
  Shape values;
  std::string_view found;  ///< what was found instead; empty for a valid array

  void reset() {
    values.clear();
    found = {};
  }
};

/// The members of an entry's object, before it is known whether it is a tensor or a node.
struct EntryDraft {
  std::string key;
  bool is_node = false;
  bool is_nested = false;
  bool has_dtype = false;
  bool has_shape = false;
  std::string dtype;
  std::string_view dtype_found;
  IntegerArray shape;
  std::vector<std::string_view> members;  ///< the known members that were found
  std::string_view repeated;              ///< a known member that was found twice, or ""

  void add_member(std::string_view name) {
    for (const std::string_view known : {"type", "dtype", "shape", "is_nested"}) {
      if (name != known) continue;
      const bool is_new = std::ranges::find(members, known) == members.end();
      if (is_new) members.push_back(known);
      if (!is_new) repeated = known;
    }
  }

  void reset(std::string_view name) {
    key.assign(name);
    is_node = is_nested = has_dtype = has_shape = false;
    members.clear();
    repeated = {};
    dtype.clear();
    dtype_found = {};
    shape.reset();
  }
};

/// Checks a shape of elements of `itemsize` bytes and sets `size_bytes`. Returns the error, if any.
/// The limit is that of Tensor: fewer than 2^63 bytes or, for a shape with lengths of 0, a product
/// of the other lengths below 2^63. `limit` describes this limit in the message.
std::optional<Error> check_shape(const Shape& shape, std::size_t itemsize,
                                 std::uint64_t& size_bytes, std::string_view limit) {
  for (const std::int64_t length : shape) {
    if (length < 0) {
      return base::corrupt()
          .problem("negative length in shape")
          .expected("at least 0")
          .found(length);
    }
  }
  const bool empty = std::ranges::find(shape, 0) != shape.end();
  std::uint64_t size = empty ? 1 : itemsize;
  for (const std::int64_t length : shape) {
    if (length == 0) continue;
    const auto product = base::checked_mul(size, static_cast<std::uint64_t>(length));
    if (!product || *product > std::numeric_limits<std::int64_t>::max()) {
      return base::corrupt()
          .problem("shape too large")
          .expected(limit)
          .found(base::list_text(shape));
    }
    size = *product;
  }
  size_bytes = empty ? 0 : size;
  return {};
}

base::Where place_of(const MetaEntry& entry) { return {"", "tensor " + base::quote(entry.key)}; }

MetaEntry make_entry(EntryDraft& draft) {
  MetaEntry entry;
  entry.key = std::move(draft.key);
  entry.is_node = draft.is_node;
  entry.is_nested = draft.is_nested;
  if (!draft.repeated.empty()) {
    entry.problem = base::corrupt(base::Where("", "entry " + base::quote(entry.key)))
                        .part("key ", base::quote(draft.repeated))
                        .expected("once")
                        .found("twice");
  }
  if (entry.is_node || entry.problem) return entry;
  constexpr std::string_view kModule = "torch.";
  const std::string_view name = draft.dtype;
  const auto dtype = name.starts_with(kModule) ? dtype_from_name(name.substr(kModule.size()))
                                               : std::optional<DType>();
  entry.shape = std::move(draft.shape.values);
  const base::Where where = place_of(entry);
  if (!draft.dtype_found.empty()) {
    entry.problem = base::corrupt(where.at("dtype")).expected("a string").found(draft.dtype_found);
  } else if (!draft.shape.found.empty()) {
    entry.problem =
        base::corrupt(where.at("shape")).expected("an array of integers").found(draft.shape.found);
  } else if (!dtype) {
    entry.problem = base::unsupported(where)
                        .problem("unsupported dtype")
                        .expected("a supported one such as \"torch.float32\"")
                        .found(base::quote(name));
  } else {
    entry.dtype = *dtype;
    check_leaf_size(entry);
  }
  return entry;
}

/// Receives the JSON events of a meta.json. Level 1 is the document's object, level 2 an entry or
/// an array of the document, level 3 the shape of an entry.
class MetaHandler final : public codecs::JsonHandler {
 public:
  explicit MetaHandler(const std::string& where) : where_(where) {}

  void null() override { scalar("null"); }
  void boolean(bool value) override {
    if (level_ == 2 && in_entry_ && member_ == "is_nested") draft_.is_nested = value;
    scalar("a bool");
  }
  void integer(std::int64_t value) override {
    if (array_ != nullptr && level_ == array_level_) {
      array_->values.push_back(value);
      return;
    }
    if (level_ == 1 && member_ == "_format_version")
      check_version(std::to_string(value), value > kFormatVersion);
    if (level_ == 1 && member_ == "stack_dim") {
      meta_.stack_dim = value;
      stack_dim_found_.clear();
      return;
    }
    scalar("an integer");
  }
  void big_integer(std::string_view digits) override {
    if (level_ == 1 && member_ == "_format_version") {
      check_version(std::string(digits.substr(0, 40)), !digits.starts_with('-'));
    }
    scalar("an integer beyond 64 bits");
  }
  void number(double) override { scalar("a floating-point number"); }
  void string(std::string_view value) override;
  void begin_object() override;
  void key(std::string_view value) override;
  void end_object() override;
  void begin_array() override;
  void end_array() override;

  NodeMeta finish();
  /// Keys of the document, to refuse duplicates.
  const std::vector<std::string>& root_members() const { return root_members_; }

 private:
  void scalar(std::string_view found) { unexpected(found); }
  void unexpected(std::string_view found);
  void member_of_root(std::string_view found);
  void check_stack_dim() const;
  void check_version(const std::string& version, bool too_high) const {
    if (!too_high) return;
    throw base::unsupported(where_)
        .part("_format_version")
        .expected("at most ", kFormatVersion)
        .found(version)
        .remedy("a newer version of tensordict wrote this folder");
  }

  const std::string& where_;
  NodeMeta meta_;
  bool has_type_ = false;
  std::string class_;
  std::size_t level_ = 0;
  std::string member_;  ///< the key that was parsed last, of the document or of an entry
  bool in_entry_ = false;
  EntryDraft draft_;
  IntegerArray batch_;
  IntegerArray* array_ = nullptr;  ///< destination of the current array of integers
  std::size_t array_level_ = 0;
  bool in_names_ = false;
  std::optional<DimNames> names_;
  std::string stack_dim_found_ = "none";  ///< what was found instead; empty for an integer
  std::vector<std::string> root_members_;
};

void MetaHandler::string(std::string_view value) {
  if (in_names_ && level_ == 2) {
    names_->push_back(std::string(value));
    return;
  }
  if (level_ == 1) {
    if (member_ == "_type") {
      meta_.type.assign(value);
      has_type_ = true;
      return;
    }
    if (member_ == "_class") {
      class_.assign(value);
      return;
    }
    if (member_ == "device") {
      meta_.device = value == "None" ? std::string_view() : value;
      return;
    }
    if (member_ == "stack_dim_name") {
      meta_.stack_dim_name = std::string(value);
      return;
    }
  }
  if (level_ == 2 && in_entry_ && member_ == "dtype") {
    draft_.dtype.assign(value);
    draft_.has_dtype = true;
    return;
  }
  unexpected("a string");
}

/// Called for a member of the document with a value that the callbacks have not stored. Throws if
/// the member is metadata of the node and must have another type.
void MetaHandler::member_of_root(std::string_view found) {
  const bool null = found == "null";
  if (member_ == "_type") {
    // Null is accepted, as in tensordict: `_class` then determines the kind of the node.
    if (!null) throw base::corrupt(where_).part("_type").expected("a string").found(found);
    return;
  }
  if (member_ == "shape" && !null) {
    throw base::corrupt(where_).part("shape").expected("an array of integers").found(found);
  }
  if (member_ == "device") {
    if (!null) throw base::corrupt(where_).part("device").expected("a string").found(found);
    return;
  }
  if (member_ == "stack_dim") stack_dim_found_ = found;
  if (member_ == "stack_dim_name" && !null) {
    throw base::corrupt(where_).part("stack_dim_name").expected("a string or null").found(found);
  }
}

void MetaHandler::unexpected(std::string_view found) {
  if (level_ == 0) throw base::corrupt(where_).expected("a JSON object").found(found);
  if (array_ != nullptr && level_ == array_level_) {
    if (array_->found.empty()) array_->found = "an array with other elements";
    return;
  }
  if (in_names_ && level_ == 2) {
    if (found != "null")
      throw base::corrupt(where_).part("_names").expected("strings or null").found(found);
    names_->push_back(std::nullopt);
    return;
  }
  if (level_ == 1) return member_of_root(found);
  if (level_ != 2 || !in_entry_ || found == "null") return;
  if (member_ == "type") draft_.is_node = true;
  if (member_ == "dtype") {
    draft_.has_dtype = true;
    draft_.dtype_found = found;
  }
  if (member_ == "shape") {
    draft_.has_shape = true;
    draft_.shape.found = found;
  }
}

void MetaHandler::begin_object() {
  if (level_ == 1) {
    // tensordict treats these members as metadata of the node, even if an entry has such a key.
    if (member_ == "shape" || member_ == "device" || member_ == "_type")
      member_of_root("an object");
    in_entry_ = true;
    draft_.reset(member_);
  } else if (level_ > 1) {
    unexpected("an object");
  }
  ++level_;
}

void MetaHandler::key(std::string_view value) {
  if (level_ == 1 || (level_ == 2 && in_entry_)) member_.assign(value);
  if (level_ == 2 && in_entry_) draft_.add_member(value);
  if (level_ != 1) return;
  root_members_.emplace_back(value);
  for (const std::string_view name : {"shape", "device", "_type"}) {
    if (value == name) meta_.reserved.emplace_back(name, meta_.entries.size());
  }
}

void MetaHandler::end_object() {
  --level_;
  if (level_ != 1 || !in_entry_) return;
  in_entry_ = false;
  if (!draft_.is_node && !(draft_.has_dtype && draft_.has_shape)) return;
  meta_.entries.push_back(make_entry(draft_));
}

void MetaHandler::begin_array() {
  if (level_ == 0) throw base::corrupt(where_).expected("a JSON object").found("an array");
  const bool first = array_ == nullptr && !in_names_;
  if (first && level_ == 1 && member_ == "shape") {
    array_ = &batch_;
    meta_.has_shape = true;
  } else if (first && level_ == 1 && member_ == "_names") {
    in_names_ = true;
    names_.emplace();
  } else if (first && level_ == 2 && in_entry_ && member_ == "shape") {
    draft_.has_shape = true;
    array_ = &draft_.shape;
    array_->reset();
  } else {
    unexpected("an array");
    ++level_;
    return;
  }
  ++level_;
  array_level_ = level_;
}

void MetaHandler::end_array() {
  if (level_ == array_level_) {
    array_ = nullptr;
    in_names_ = false;
    array_level_ = 0;
  }
  --level_;
}

MetaKind kind_of(std::string_view class_id, std::string_view type) {
  using Row = std::pair<std::string_view, MetaKind>;
  static constexpr Row kClasses[] = {
      {"tensordict:TensorDict", MetaKind::tensordict},
      {"tensordict:PersistentTensorDict", MetaKind::tensordict},
      {"tensordict:LazyStackedTensorDict", MetaKind::lazy_stack},
      {"tensordict:NonTensorStack", MetaKind::non_tensor_stack},
  };
  static constexpr Row kTypes[] = {
      {"<class 'tensordict._td.TensorDict'>", MetaKind::tensordict},
      {"<class 'tensordict.tensordict.TensorDict'>", MetaKind::tensordict},
      {"<class 'tensordict.persistent.PersistentTensorDict'>", MetaKind::tensordict},
      {"<class 'tensordict.nn.params.TensorDictParams'>", MetaKind::tensordict},
      {"<class 'tensordict._lazy.LazyStackedTensorDict'>", MetaKind::lazy_stack},
      {"<class 'tensordict.tensorclass.NonTensorData'>", MetaKind::non_tensor},
      {"<class 'tensordict.tensorclass.MetaData'>", MetaKind::non_tensor},
      {"<class 'tensordict.tensorclass.NonTensorStack'>", MetaKind::non_tensor_stack},
  };
  for (const auto& [name, kind] : kClasses) {
    if (class_id == name) return kind;
  }
  for (const auto& [name, kind] : kTypes) {
    if (type == name) return kind;
  }
  if (type.starts_with("<class 'tensordict.tensorclass.MetaData[")) return MetaKind::non_tensor;
  if (type == "<class 'tensordict._td._SubTensorDict'>" ||
      type.starts_with("<class 'tensordict._lazy._") ||
      class_id == "tensordict._td:_SubTensorDict" || class_id.starts_with("tensordict._lazy:_")) {
    return MetaKind::view;
  }
  return MetaKind::unknown;
}

/// Checks `stack_dim` of a stack. In other nodes, a member of that name is data.
void MetaHandler::check_stack_dim() const {
  const bool is_lazy = meta_.kind == MetaKind::lazy_stack;
  if (!is_lazy && meta_.kind != MetaKind::non_tensor_stack) return;
  if (!stack_dim_found_.empty()) {
    // `stack_dim` may be missing in a NonTensorStack: tensordict does not read it if meta.json has
    // the member `data`.
    if (!is_lazy && stack_dim_found_ == "none") return;
    throw base::corrupt(where_).part("stack_dim").expected("an integer").found(stack_dim_found_);
  }
  if (meta_.stack_dim >= 0 && meta_.stack_dim <= kMaxStackDim) return;
  throw base::corrupt(where_)
      .part("stack_dim")
      .expected("0 to ", kMaxStackDim)
      .found(meta_.stack_dim);
}

NodeMeta MetaHandler::finish() {
  if (!has_type_ && class_.empty()) {
    throw base::corrupt(where_)
        .part("_type")
        .expected("a string")
        .found("none")
        .remedy("this is not metadata of tensordict");
  }
  if (!batch_.found.empty()) {
    throw base::corrupt(where_).part("shape").expected("an array of integers").found(batch_.found);
  }
  if (const auto problem = batch_size_fault(batch_.values)) {
    throw Error(*problem).path(where_).within("shape");
  }
  meta_.kind = kind_of(class_, meta_.type);
  if (!has_type_) meta_.type = class_;
  check_stack_dim();
  meta_.batch_size = std::move(batch_.values);
  if (names_ && !names_->empty()) {
    if (names_->size() != meta_.batch_size.size()) {
      throw base::corrupt(where_)
          .part("_names")
          .expected("one for each of ", meta_.batch_size.size(), " batch dimensions")
          .found(names_->size());
    }
    std::vector<std::string> given;
    for (const auto& name : *names_) {
      if (name) given.push_back(*name);
    }
    std::sort(given.begin(), given.end());
    const auto twice = std::adjacent_find(given.begin(), given.end());
    if (twice != given.end()) {
      throw base::corrupt(where_)
          .part("_names")
          .expected("different names")
          .found(base::quote(*twice), " twice");
    }
    meta_.names = std::move(*names_);
  }
  return std::move(meta_);
}

void refuse_duplicates(const std::vector<std::string>& keys, const std::string& where) {
  const auto key_at = [&](std::uint32_t i) { return std::string_view(keys[i]); };
  KeyIndex index;
  index.reserve(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (index.insert(keys[i], static_cast<std::uint32_t>(i), key_at) != KeyIndex::kNone) {
      throw base::corrupt(where).part("key ", base::quote(keys[i])).expected("once").found("twice");
    }
  }
}

}  // namespace

void check_leaf_size(MetaEntry& entry) {
  const std::size_t size = entry.is_nested ? sizeof(std::int64_t) : itemsize(entry.dtype);
  std::optional<Error> problem =
      check_shape(entry.shape, size, entry.size_bytes, "fewer than 2^63 bytes");
  const auto bad_sizes = [] { return base::corrupt().part("shape of a nested tensor"); };
  if (!problem && entry.is_nested && entry.shape.size() != 2) {
    problem = bad_sizes().expected("2 lengths").found(entry.shape.size());
  }
  if (!problem && entry.is_nested && entry.shape[1] == 0 && entry.shape[0] != 0) {
    problem = bad_sizes().expected("components of at least 1 dimension").found("0");
  }
  if (problem) entry.problem = Error(*problem).within(place_of(entry).part);
}

std::optional<Error> batch_size_fault(const Shape& batch) {
  std::uint64_t ignored = 0;
  return check_shape(batch, 1, ignored, "a product of the lengths below 2^63");
}

bool fits_batch(const Shape& shape, bool is_nested, const Shape& batch) {
  if (!is_nested) return starts_with(shape, batch);
  return batch.empty() || starts_with(shape, {batch.front()});
}

NodeMeta parse_meta(std::string_view text, const std::string& where) {
  MetaHandler handler(where);
  codecs::parse_json(text, where, handler);
  NodeMeta meta = handler.finish();
  refuse_duplicates(handler.root_members(), where);
  return meta;
}

Value::Object parse_fields(std::string_view text, const std::string& where) {
  Value value = from_json(text, where);
  auto* object = std::get_if<Value::Object>(&value.data());
  if (object == nullptr) {
    throw base::corrupt(where).expected("a JSON object").found(value.type_name());
  }
  std::erase_if(object->members, [](const auto& member) { return member.first == "_type"; });
  return std::move(*object);
}

}  // namespace tenfold::detail::formats::folder
