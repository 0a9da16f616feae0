// Light or dark: as the system is, until the reader chooses.

const THEME_KEY = "millpond-theme";

/** Keeps nothing where the browser keeps nothing for files. */
function remembered(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // It is chosen anew next time.
  }
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** A button that changes it. Whoever draws listens to "themechange". */
function themeButton() {
  const button = element("button", { type: "button", class: "theme" });
  const show = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Use ${isDark() ? "light" : "dark"} colours`);
    document.dispatchEvent(new Event("themechange"));
  };
  const chosen = remembered(THEME_KEY);
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    remember(THEME_KEY, document.documentElement.dataset.theme);
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
  return button;
}
