encoding = config["preprocessing"]


def sample(row):
    """A row, a dict of cells by the names of the columns, as the model takes it: [1, INPUTS]."""
    cells = {name.strip(): str(cell) for name, cell in row.items() if name and cell is not None}
    marks, values = encoding["blank_marks"], []
    for column in encoding["columns"]:
        cell, known = cells[column["name"].strip()], column.get("categories", [])
        blank = cell in marks or (cell not in known and cell.strip() in marks)
        if blank and encoding["blanks"] in ("error", "drop"):
            raise ValueError(f"column {column['name']}: the cell is empty")
        if column["type"] == "number":
            x = column["fill"] if blank else float(cell)
            values.append((x - column["mean"]) * (1 / column["std"]))
        elif blank:
            values += column["fill"]
        else:
            place = known.index(cell if cell in known else cell.strip())
            values += [1.0 if i == place else 0.0 for i in range(len(known))]
    return torch.tensor([values], dtype=torch.float32)


def rows(path):
    """The rows of a text file whose first line has the names of the columns."""
    csv.field_size_limit(2**31 - 1)
    with open(path, encoding="utf-8-sig", newline="") as file:
        yield from csv.DictReader(file, delimiter=encoding["delimiter"])


