// Optional: every page is readable without this script. Hides the rows whose text lacks one of the words.
const input = document.getElementById("filter");
if (input) {
  for (const hidden of document.querySelectorAll("[data-needs-script]")) hidden.hidden = false;
  const heads = [...document.querySelectorAll("table.grid thead th")].map((head) => head.textContent);
  const rows = [...document.querySelectorAll("table.grid tr.row")].map((row) => {
    const cells = [...row.cells].map((cell, n) => (n > 1 && !cell.classList.contains("none") ? heads[n] : ""));
    return { row, text: (row.textContent + " " + cells.join(" ")).toLowerCase() };
  });
  const apply = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const { row, text } of rows) row.hidden = !words.every((word) => text.includes(word));
    for (const body of document.querySelectorAll("table.grid tbody")) {
      body.hidden = ![...body.querySelectorAll("tr.row")].some((row) => !row.hidden);
    }
  };
  input.addEventListener("input", apply);
  apply();
}
