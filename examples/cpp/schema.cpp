// The columns of a data set.
#include <tenfold/schema.hpp>

#include <iostream>

int main() {
  const tenfold::Schema schema({{.path = {"x"}, .dtype = tenfold::DType::float32, .shape = {3}},
                                {.path = {"name"}, .kind = tenfold::ColumnKind::string}});
  std::cout << schema.to_json() << '\n';
  const tenfold::Column* name = schema.find("name");
  return name != nullptr && name->is_text() && name->dtype_name() == "string" ? 0 : 1;
}
