// Copied examples lose the prompts and the printed results, so that they can be pasted and run.
document.addEventListener("copy", (event) => {
  const text = document.getSelection().toString() || (document.activeElement && document.activeElement.value) || "";
  const lines = text.split("\n");
  if (!lines.some((line) => line.startsWith(">>> ") || line.startsWith("$ "))) return;
  const code = lines.filter((line) => /^(>>>|\.\.\.|\$)( |$)/.test(line)).map((line) => line.replace(/^(>>>|\.\.\.|\$) ?/, ""));
  event.clipboardData.setData("text/plain", code.join("\n"));
  event.preventDefault();
});
